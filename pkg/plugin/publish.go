// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// Publish hands the node's resources to upstream's slice controller. The first
// time it waits until the kubelet knows the plugin: a pod that is scheduled to a
// GPU before fails in the kubelet, which tries again after a minute and more. And
// it fails while the API server cannot be reached or refuses the slices;
// later errors come to HandleError. Calls must not overlap.
func (p *Plugin) Publish(ctx context.Context, resources resourceslice.DriverResources) error {
	if !p.published {
		if err := p.registration.wait(ctx); err != nil {
			return err
		}
		if err := p.publishFirst(ctx, resources); err != nil {
			return err
		}
		p.published = true
	}
	return p.helper.PublishResources(ctx, resources)
}

// publishFirst creates the slices of a node that has none, as upstream's
// controller would: that waits for a second before it looks whether its informer
// has synced, and new nodes have pods waiting. It then finds them as if they
// were left by an earlier process, and puts right what is not as it wants it.
// Slices that are there already are left to it.
func (p *Plugin) publishFirst(ctx context.Context, resources resourceslice.DriverResources) error {
	client := p.client.ResourceV1().ResourceSlices()
	existing, err := client.List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver:   p.driver,
		resourceapi.ResourceSliceSelectorNodeName: p.node,
	}.String()})
	if err != nil {
		return fmt.Errorf("list the node's ResourceSlices: %w", err)
	}
	if len(existing.Items) > 0 {
		return nil
	}
	node, err := p.client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the node's object: %w", err)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}
	for name, pool := range resources.Pools {
		for i, slice := range pool.Slices {
			_, err := client.Create(ctx, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{
					// The number decides the order in which the scheduler looks.
					GenerateName:    fmt.Sprintf("%05x-%s-%s-", i, p.driver, p.node),
					OwnerReferences: []metav1.OwnerReference{owner},
				},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:         p.driver,
					NodeName:       &p.node,
					Pool:           resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create ResourceSlice %d of pool %s: %w", i, name, err)
			}
		}
	}
	return nil
}
