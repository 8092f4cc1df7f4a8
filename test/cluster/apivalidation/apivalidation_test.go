// SPDX-License-Identifier: Apache-2.0

package apivalidation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

// sliceList is a v1.List of ResourceSlices, as --print-slices writes it.
type sliceList struct {
	Kind  string                     `json:"kind"`
	Items []resourcev1.ResourceSlice `json:"items"`
}

func readSlices(t *testing.T, file string) []resourcev1.ResourceSlice {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	var list struct {
		sliceList
		APIVersion string          `json:"apiVersion"`
		Metadata   json.RawMessage `json:"metadata"`
	}
	if err := decoder.Decode(&list); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if list.Kind != "List" && list.Kind != "ResourceSliceList" || len(list.Items) == 0 {
		t.Fatalf("%s: kind %q with %d items, want a List of ResourceSlices", file, list.Kind, len(list.Items))
	}
	return list.Items
}

func example(t *testing.T) *resourcev1.ResourceSlice {
	t.Helper()
	return &readSlices(t, "testdata/example.json")[0]
}

func TestTheExampleIsAccepted(t *testing.T) {
	if err := Validate(t.Context(), example(t)); err != nil {
		t.Error(err)
	}
}

// The API server must accept each slice that the catalog's test writes. That test
// compares the slices of each model and offer with golden files and writes them for
// this test.
func TestTheSlicesOfEachModelAndOfferAreAccepted(t *testing.T) {
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "-C", "../../..", "test", "-count=1", "-run=^TestSlicesOfEachModelAndOffer$", "./pkg/catalog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "WRITE_SLICES="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	must(t, err)
	if len(files) < 20 {
		t.Fatalf("%d lists of slices in %s, want at least 20", len(files), folder)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, slice := range readSlices(t, file) {
				if err := Validate(t.Context(), &slice); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestWhatTheAPIServerRefusesIsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*resourcev1.ResourceSlice)
		want   string
	}{
		{"a device name that is not a DNS label", func(s *resourcev1.ResourceSlice) { s.Spec.Devices[0].Name = "gpu.0" }, "spec.devices[0].name"},
		{"two devices of one name", func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices = append(s.Spec.Devices, s.Spec.Devices[0])
		}, "spec.devices[1]: Duplicate value"},
		{"more than 128 devices", func(s *resourcev1.ResourceSlice) {
			for i := range 128 {
				s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("more-%d", i)})
			}
		}, "spec.devices: Too many"},
		{"more than 32 attributes and capacities", func(s *resourcev1.ResourceSlice) {
			for i := range 31 {
				s.Spec.Devices[0].Attributes[resourcev1.QualifiedName(fmt.Sprintf("a%d", i))] = resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}
			}
		}, "must not exceed 32"},
		{"an attribute of more than 64 bytes", func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].Attributes["long"] = resourcev1.DeviceAttribute{StringValue: ptr.To(strings.Repeat("x", 65))}
		}, "spec.devices[0].attributes[long].string: Too long"},
		{"a version that is not semantic", func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].Attributes["driverVersion"] = resourcev1.DeviceAttribute{VersionValue: ptr.To("12.8")}
		}, "version"},
		{"a capacity policy on an exclusive device", func(s *resourcev1.ResourceSlice) {
			s.Spec.Devices[0].AllowMultipleAllocations = nil
		}, "requestPolicy"},
		{"no driver", func(s *resourcev1.ResourceSlice) { s.Spec.Driver = "" }, "spec.driver: Required value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			slice := example(t)
			test.change(slice)
			err := Validate(t.Context(), slice)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestAFieldBehindAGateThatIsOffIsReported(t *testing.T) {
	slice := example(t)
	slice.Spec.Devices[0].Attributes["nvlinkCliques"] = resourcev1.DeviceAttribute{StringValues: []string{"a", "b"}}
	if err := Validate(t.Context(), slice); !errors.Is(err, ErrDropped) {
		t.Errorf("got %v, want %v", err, ErrDropped)
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAListTypeAttributes, true)
	if err := Validate(t.Context(), slice); err != nil {
		t.Errorf("with the gate on: %v", err)
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
