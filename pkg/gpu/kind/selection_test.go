// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

func TestASelectionAddsToTheStandardAttributes(t *testing.T) {
	text := "x"
	one, list := resourceapi.DeviceAttribute{StringValue: &text}, resourceapi.DeviceAttribute{StringValues: []string{text}}
	of := kind.Attributes{"type": one, "resource.kubernetes.io/pcieRoot": one, "brand": one, "driverVersion": one, "nvlinkPeers": list}
	for words, want := range map[string][]string{
		"standard":            {"nvlinkPeers", "resource.kubernetes.io/pcieRoot", "type"},
		"brand":               {"brand", "nvlinkPeers", "resource.kubernetes.io/pcieRoot", "type"},
		"driverVersion,brand": {"brand", "driverVersion", "nvlinkPeers", "resource.kubernetes.io/pcieRoot", "type"},
		"all":                 {"brand", "driverVersion", "nvlinkPeers", "resource.kubernetes.io/pcieRoot", "type"},
	} {
		t.Run(words, func(t *testing.T) {
			s, err := kind.ParseSelection(words)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range slices.Sorted(maps.Keys(s.Published(of))) {
				got = append(got, string(name))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestASelectionRefusesUnknownAttributes(t *testing.T) {
	for _, words := range []string{"", "colour", "brand,", "brand,all", "type"} {
		if s, err := kind.ParseSelection(words); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "persistenceMode") {
			t.Errorf("%q: got %+v, %v", words, s, err)
		}
	}
}
