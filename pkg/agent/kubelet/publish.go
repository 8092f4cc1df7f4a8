// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

// Publish passes the node's resources to upstream's slice controller. Calls must not
// overlap.
//
// The first call waits until the plugin is registered with the kubelet: a pod that is
// scheduled to a GPU earlier fails in the kubelet, which retries only after a minute or
// more. The first call also returns an error if the API server is unreachable or
// refuses the slices. Later errors go to HandleError.
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

// publishFirst creates the slices of a node that has none. Upstream's controller would
// create them too, but waits a second for its informer to sync, and pods may wait for a
// new node. The controller then adopts the slices as those of an earlier process, and
// corrects them if needed. publishFirst does nothing if the node has slices.
func (p *Plugin) publishFirst(ctx context.Context, resources resourceslice.DriverResources) error {
	client := p.Client.ResourceV1().ResourceSlices()
	existing, err := client.List(ctx, catalog.SlicesOfNode(p.DriverName, p.NodeName))
	if err != nil {
		return fmt.Errorf("list the node's ResourceSlices: %w", err)
	}
	if len(existing.Items) > 0 {
		return nil
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, p.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the node's object: %w", err)
	}
	for i, slice := range catalog.SlicesOf(resources, p.DriverName, p.NodeName, node.UID) {
		if _, err := client.Create(ctx, &slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ResourceSlice %d of pool %s: %w", i, slice.Spec.Pool.Name, err)
		}
	}
	return nil
}

// HandleError implements [kubeletplugin.DRAPlugin]. Upstream retries recoverable errors,
// which are errors of publishing; HandleError counts them and passes them to
// [Options].PublishError. Any other error is fatal.
func (p *Plugin) HandleError(ctx context.Context, err error, msg string) {
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.Fatal(fmt.Errorf("%s: %w", msg, err))
		return
	}
	p.Observer.PublishFailed(publishReason(err))
	p.PublishError(ctx, err, msg)
}

// publishReason returns the API server's reason for an error, such as "Forbidden". It
// returns "DroppedFields" if the cluster does not support a field, and "Other" if the
// reason is unknown.
func publishReason(err error) string {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		return "DroppedFields"
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "Other"
}
