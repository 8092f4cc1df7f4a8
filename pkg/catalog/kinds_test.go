// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// demoClass returns the DeviceClass in a manifest of demo/classes.
func demoClass(t *testing.T, file string) *resourceapi.DeviceClass {
	t.Helper()
	found, err := allocator.ReadClasses(filepath.Join("..", "..", "demo", "classes", file))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %d classes, %v, want one", file, len(found), err)
	}
	return found[0]
}

// The attributes that these classes read are published on request, and on some GPUs only.
func TestClassesOfTheDemosSelectTheirKindOfGPU(t *testing.T) {
	nvswitch, production, rack := demoClass(t, "nvswitch.yaml"), demoClass(t, "production.yaml"), demoClass(t, "rack.yaml")
	requested := kind.Selection{Named: []resourceapi.QualifiedName{"nvlinkSwitch", "eccEnabled"}}
	for name, c := range map[string]struct {
		class     *resourceapi.DeviceClass
		model     string
		selection kind.Selection
		fits      bool
	}{
		"NVSwitch on a DGX H100":               {nvswitch, "dgx-h100", requested, true},
		"NVSwitch on a DGX-1, which has none":  {nvswitch, "dgx1-v100", requested, false},
		"NVSwitch where it is not published":   {nvswitch, "dgx-h100", kind.Selection{}, false},
		"production on a DGX H100":             {production, "dgx-h100", requested, true},
		"production where it is not published": {production, "dgx-h100", kind.Selection{}, false},
		"a rack on a node of it":               {rack, "gb200", kind.Selection{}, true},
		"a rack, on lean nodes":                {rack, "gb200", kind.Selection{Level: kind.LevelLean}, true},
		"a rack on a node of no fabric":        {rack, "dgx-h100", kind.Selection{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cat := catalog.Inputs{Settings: catalog.Settings{Pool: "node-1", Selection: c.selection}, NodeConfig: catalog.NodeConfig{Offer: "share", Shares: catalog.ShareOffer{MPS: true}}}
			node := allocator.NewNode(catalog.New(cat).Resources(simulated(t, c.model), nil), allocator.Features(), slices.Concat(classes(t), []*resourceapi.DeviceClass{c.class})...)
			request := claim("count=4")
			request.Requests[0].Exactly.DeviceClassName = c.class.Name
			got := allocateAll(t, node, []resourceapi.DeviceClaim{request})
			if fits := !strings.Contains(got, "does not fit"); fits != c.fits {
				t.Errorf("four GPUs: %q, want that they fit: %v", got, c.fits)
			}
		})
	}
}

func TestTheSelectorByCUDAReadsTheDriver(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "demo", "classes", "cuda.yaml"))
	must(t, err)
	var template resourceapi.ResourceClaimTemplate
	first, _, _ := strings.Cut(string(text), "\n---\n")
	must(t, yaml.UnmarshalStrict([]byte(first), &template))
	// As the API server sets them.
	template.Spec.Spec.Devices.Requests[0].Exactly.AllocationMode, template.Spec.Spec.Devices.Requests[0].Exactly.Count = resourceapi.DeviceAllocationModeExactCount, 1
	for cuda, want := range map[int]bool{4: false, 7: false, 8: true, 9: true} {
		for _, level := range []kind.Selection{{}, {Level: kind.LevelLean}} {
			hardware := simulated(t, "dgx-h100")
			hardware.CUDADriverVersion.Major, hardware.CUDADriverVersion.Minor = 12, cuda
			c := sharing()
			c.Selection = level
			node := allocator.NewNode(catalog.New(c).Resources(hardware, nil), allocator.Features(), classes(t)...)
			got := allocateAll(t, node, []resourceapi.DeviceClaim{template.Spec.Spec.Devices})
			// Lean nodes do not publish the attribute, and the claim waits without an error.
			wanted := want && level.Level != kind.LevelLean
			if fits := !strings.Contains(got, "does not fit"); fits != wanted {
				t.Errorf("CUDA 12.%d, attributes %+v: %q, want that it fits: %v", cuda, level, got, wanted)
			}
		}
	}
}
