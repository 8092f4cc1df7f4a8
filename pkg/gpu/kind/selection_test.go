// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// selected returns the names of a device's attributes that the words publish.
func selected(t *testing.T, words string) []string {
	t.Helper()
	text := "x"
	one, list := resourceapi.DeviceAttribute{StringValue: &text}, resourceapi.DeviceAttribute{StringValues: []string{text}}
	of := kind.Attributes{"type": one, "resource.kubernetes.io/pcieRoot": one, "brand": one, "driverVersion": one, "eccEnabled": one, "nvlinkLinks": one, "nvlinkPeers": list}
	s, err := kind.ParseSelection(words)
	must(t, err)
	var got []string
	for _, name := range slices.Sorted(maps.Keys(s.Published(of))) {
		got = append(got, string(name))
	}
	return got
}

func TestASelectionIsALevelAndNames(t *testing.T) {
	const least, standard = "nvlinkPeers resource.kubernetes.io/pcieRoot type", "brand driverVersion nvlinkPeers resource.kubernetes.io/pcieRoot type"
	for words, want := range map[string]string{
		"lean":                  least,
		"lean,brand":            "brand " + least,
		"standard":              standard,
		"brand,type":            standard,
		"eccEnabled":            "brand driverVersion eccEnabled nvlinkPeers resource.kubernetes.io/pcieRoot type",
		"lean,standard":         standard,
		"standard,lean":         standard,
		"all":                   "brand driverVersion eccEnabled nvlinkLinks nvlinkPeers resource.kubernetes.io/pcieRoot type",
		"eccEnabled,lean":       "eccEnabled " + least,
		"nvlinkLinks,all,brand": "brand driverVersion eccEnabled nvlinkLinks nvlinkPeers resource.kubernetes.io/pcieRoot type",
	} {
		t.Run(words, func(t *testing.T) {
			require.Same(t, "selected attributes", strings.Fields(want), selected(t, words))
		})
	}
}

func TestTheStandardIsTheCardOfASliceAndTheNamesOfNVIDIAsDriver(t *testing.T) {
	var got, zero kind.Selection
	got.Level = kind.LevelStandard
	for _, name := range strings.Fields("type uuid productName brand architecture cudaComputeCapability driverVersion cudaDriverVersion addressingMode " +
		"multiprocessors migCapable migMode resource.kubernetes.io/numaNode resource.kubernetes.io/pcieRoot resource.kubernetes.io/pciBusID " +
		"nvlinkDomain nvlinkPeers fabricClusterUUID fabricCliqueID sharing memoryEnforcement enforcement profile parentUUID") {
		if q := resourceapi.QualifiedName(name); !got.Includes(q) || !zero.Includes(q) {
			t.Errorf("%s is not published by default", name)
		}
	}
	for _, name := range strings.Fields("nvlinkLinks nvlinkVersion nvlinkSwitch eccEnabled persistenceMode computeEnforcement") {
		if got.Includes(resourceapi.QualifiedName(name)) {
			t.Errorf("%s is published by default", name)
		}
	}
}

// A word that this release does not know, as after a downgrade, must not take the others.
func TestASelectionNamesUnknownAttributesAndHasTheOthers(t *testing.T) {
	for words, unknown := range map[string]string{"": `""`, "colour": `"colour"`, "lean,eccEnabled,": `""`, "lean,eccEnabled,Brand,hue": `"Brand", "hue"`} {
		s, err := kind.ParseSelection(words)
		if !errors.Is(err, gpu.ErrInvalid) || !strings.HasPrefix(err.Error(), unknown+":") || !strings.Contains(err.Error(), "persistenceMode") {
			t.Errorf("%q: got %v", words, err)
		}
		if lean := strings.HasPrefix(words, "lean"); s.Includes("eccEnabled") != lean || s.Includes("brand") == lean || s.Includes("colour") {
			t.Errorf("%q is the selection %+v", words, s)
		}
	}
}
