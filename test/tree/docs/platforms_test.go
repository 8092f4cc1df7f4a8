// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

const autoscalers = "docs/admin/programs.md"

// karpentersGPU is a GPU as Karpenter's AWS provider models it with
// nvidia-consumable-capacity: memory, by the list of attributes in its documentation.
func karpentersGPU() cel.Device {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	return cel.Device{
		Driver: "gpu.nvidia.com", AllowMultipleAllocations: ptr.To(true),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": text("gpu"), "productName": text("NVIDIA H100 80GB HBM3"), "brand": text("Nvidia"), "architecture": text("Hopper"),
			"cudaComputeCapability": {VersionValue: ptr.To("9.0.0")},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("81152Mi")}},
	}
}

func TestKarpenterFindsTheClassesThatThePageNames(t *testing.T) {
	var found []string
	gpu, compiler := karpentersGPU(), cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	for _, class := range chartClasses(t) {
		matches := true
		for _, s := range class.Spec.Selectors {
			selector := compiler.CompileCELExpression(s.CEL.Expression, cel.Options{})
			if selector.Error != nil {
				t.Fatalf("%s: %v", class.Name, selector.Error)
			}
			ok, _, err := selector.DeviceMatches(t.Context(), gpu)
			if err != nil {
				t.Errorf("%s: an error ends the simulation of the pod: %v", class.Name, err)
			}
			matches = matches && ok
		}
		if matches {
			found = append(found, class.Name)
		}
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| class `([^`]+)`[^|]*\\| expected").FindAllStringSubmatch(read(t, autoscalers), -1) {
		documented = append(documented, row[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Compact(documented), found); diff != "" {
		t.Errorf("classes whose claims let Karpenter add a node (-%s +chart):\n%s", autoscalers, diff)
	}
}
