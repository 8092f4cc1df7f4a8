// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Free is how many more claims of a class fit on a node, in JSON and YAML.
type Free struct {
	Class string `json:"class"`
	// Memory of each claim; nil for classes of whole devices.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Node is empty if no claim of the class fits on any node.
	Node   string `json:"node,omitempty"`
	Claims int    `json:"claims"`
	// Partial is true if claims that the user may not read can hold some of these devices.
	Partial bool `json:"partial,omitempty"`
}

// ClaimsText returns the number of claims, or the most that it can be.
func (f Free) ClaimsText() string {
	if f.Partial && f.Claims > 0 {
		return fmt.Sprintf("at most %d", f.Claims)
	}
	return fmt.Sprint(f.Claims)
}

// MemoryText returns the memory of each claim, or a dash.
func (f Free) MemoryText() string { return gibibytesOrDash(f.Memory) }

// mostClaims bounds the claims of one class on a node. A node has fewer seats and slots.
const mostClaims = 1000

// FreeOf returns how many more claims for one device fit on each node, by class. Without names
// it returns all classes, and an error about those that cannot be searched. A class of which all devices are taken has one row. Claims of classes of shares have the memory, such as "10Gi".
func (c *Cluster) FreeOf(ctx context.Context, classes []string, memory string) ([]Free, error) {
	amount, err := resource.ParseQuantity(memory)
	if err != nil {
		return nil, fmt.Errorf("memory %s: %w", memory, gpu.ErrInvalid)
	}
	var claims []*resourceapi.ResourceClaim
	memoryOf, offered := map[string]*resource.Quantity{}, map[string]bool{}
	published := c.kinds()
	for _, class := range slices.SortedFunc(slices.Values(c.Objects.Classes), fleet.ByName) {
		if len(classes) > 0 && !slices.Contains(classes, class.Name) {
			continue
		}
		request := &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
		if class.Labels[v1alpha1.LabelShares] == "only" {
			memoryOf[class.Name] = &amount
			request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: amount}}
		}
		// Nodes offer some of the profiles of MIG devices only.
		offered[class.Name] = published[class.Labels[v1alpha1.LabelType]] && !strings.HasPrefix(class.Name, "mig-")
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: class.Name}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "device", Exactly: request}}
		claims = append(claims, claim)
	}
	found, err := c.Free(ctx, mostClaims, claims...)
	if err != nil && (len(classes) > 0 || ctx.Err() != nil) {
		return nil, fmt.Errorf("class %w", err)
	}
	rows := []Free{}
	for i, claim := range claims {
		for _, free := range found[i] {
			rows = append(rows, Free{claim.Name, memoryOf[claim.Name], free.Node, free.Claims, c.IsPartial()})
		}
		if found[i] != nil && len(found[i]) == 0 && (len(classes) > 0 || offered[claim.Name]) {
			rows = append(rows, Free{Class: claim.Name, Memory: memoryOf[claim.Name]})
		}
	}
	return rows, err
}

// kinds returns the kinds of the devices that nodes publish.
func (c *Cluster) kinds() map[string]bool {
	kinds := map[string]bool{}
	for _, node := range c.Fleet.Nodes() {
		for _, d := range node.Devices {
			if d.Published != nil {
				kinds[string(d.Kind)] = true
			}
		}
	}
	return kinds
}
