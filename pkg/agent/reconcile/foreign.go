// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// checkSlices counts the devices in the node's ResourceSlices that this driver cannot have
// published. Another driver of the same name writes them, also from another machine, and
// the kubelet's registry does not show that one.
func (r *Reconciler) checkSlices(ctx context.Context) {
	defer r.Tasks.Begin()()
	limited, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	slices, err := r.Client.ResourceV1().ResourceSlices().List(limited, catalog.SlicesOfNode(r.DriverName, r.NodeName))
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Cannot list the ResourceSlices of the node", "err", err)
		}
		return
	}
	count, example := foreignDevices(slices.Items)
	if count > 0 && r.foreignDevices == 0 {
		klog.FromContext(ctx).Info("Another driver of this name publishes devices of the node", "devices", count, "slice", example.Name, "pool", example.Spec.Pool.Name)
	}
	r.foreignDevices = count
	r.Observer.ForeignDevices(count)
}

// foreignDevices returns the number of devices with names that this driver does not use.
// It also returns a slice with one.
func foreignDevices(slices []resourceapi.ResourceSlice) (count int, example resourceapi.ResourceSlice) {
	for _, slice := range slices {
		for _, d := range slice.Spec.Devices {
			if _, err := kind.Parse(d.Name); err != nil {
				count, example = count+1, slice
			}
		}
	}
	return count, example
}
