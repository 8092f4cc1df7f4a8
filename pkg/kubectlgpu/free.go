// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// freeItem is how many more claims of a class fit on a node, in JSON and YAML.
type freeItem struct {
	Class  string `json:"class"`
	Memory string `json:"memory,omitempty"`
	Node   string `json:"node"`
	Claims int    `json:"claims"`
}

func (o *options) newFree() *cobra.Command {
	var memory string
	cmd := &cobra.Command{
		Use:   "free [CLASS...]",
		Short: "The number of further claims of each DeviceClass that fit, by node",
		Long: "For each class, the number of further claims for one device that fit, one after the other,\n" +
			"by the scheduler's own allocator. Claims of classes of shares have the memory of --memory.",
		RunE: func(cmd *cobra.Command, only []string) error {
			amount, err := resource.ParseQuantity(memory)
			if err != nil {
				return fmt.Errorf("--memory %s: %w: want an amount such as 10Gi", memory, gpu.ErrInvalid)
			}
			v, err := o.read(cmd.Context(), classList)
			if err != nil {
				return err
			}
			items := []freeItem{}
			for _, class := range slices.SortedFunc(slices.Values(v.objects.Classes), func(a, b *resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) }) {
				if len(only) > 0 && !slices.Contains(only, class.Name) {
					continue
				}
				request := &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
				wanted := ""
				if class.Labels[v1alpha1.LabelShares] == "only" {
					wanted = memory
					request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: amount}}
				}
				found, err := v.Free(cmd.Context(), resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: request}}}, mostClaims)
				if err != nil {
					return fmt.Errorf("class %s: %w", class.Name, err)
				}
				for _, free := range found {
					items = append(items, freeItem{class.Name, wanted, free.Node, free.Claims})
				}
			}
			return o.printFree(items)
		},
	}
	cmd.Flags().StringVar(&memory, "memory", "10Gi", "memory of each share")
	return cmd
}

// mostClaims bounds the claims of one class on a node. A node has fewer seats and slots.
const mostClaims = 1000

func (o *options) printFree(items []freeItem) error {
	t := table{heading: []string{"CLASS", "MEMORY", "NODE", "CLAIMS"}}
	for _, r := range items {
		t.rows = append(t.rows, []string{r.Class, orDash(r.Memory), r.Node, fmt.Sprint(r.Claims)})
	}
	return o.print(items, t)
}
