// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Free is how many more claims of a class fit on a node, in JSON and YAML.
type Free struct {
	Class string `json:"class"`
	// Memory of each claim; nil for classes of whole devices.
	Memory *resource.Quantity `json:"memory,omitempty"`
	Node   string             `json:"node"`
	Claims int                `json:"claims"`
}

// MemoryText returns the memory of each claim, or a dash.
func (f Free) MemoryText() string {
	if f.Memory == nil {
		return "-"
	}
	return Gibibytes(*f.Memory)
}

// mostClaims bounds the claims of one class on a node. A node has fewer seats and slots.
const mostClaims = 1000

// FreeOf returns how many more claims for one device fit on each node, by class. Without names
// it returns all classes. Claims of classes of shares have the memory, such as "10Gi".
func (c *Cluster) FreeOf(ctx context.Context, classes []string, memory string) ([]Free, error) {
	amount, err := resource.ParseQuantity(memory)
	if err != nil {
		return nil, fmt.Errorf("memory %s: %w", memory, gpu.ErrInvalid)
	}
	rows := []Free{}
	for _, class := range slices.SortedFunc(slices.Values(c.Objects.Classes), func(a, b *resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) }) {
		if len(classes) > 0 && !slices.Contains(classes, class.Name) {
			continue
		}
		request := &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
		var wanted *resource.Quantity
		if class.Labels[v1alpha1.LabelShares] == "only" {
			wanted = &amount
			request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: amount}}
		}
		found, err := c.Free(ctx, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: request}}}, mostClaims)
		if err != nil {
			return nil, fmt.Errorf("class %s: %w", class.Name, err)
		}
		for _, free := range found {
			rows = append(rows, Free{class.Name, wanted, free.Node, free.Claims})
		}
	}
	return rows, nil
}
