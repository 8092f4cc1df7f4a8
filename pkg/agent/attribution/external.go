// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// External reads the devices that device plugins have allocated to pods. The kubelet does not
// list a pod after a forced deletion, although its containers may live. So External remembers
// who had each device, until no process of the pod lives.
type External struct {
	// List returns the allocations to the pods that the API server has.
	List func(ctx context.Context) ([]gpu.ExternalAllocation, error)
	// Pods returns the UIDs of the pods that the kubelet has given each device.
	Pods func() (map[string][]types.UID, error)
	// Lives reports whether a pod has a process. After an error it may have one.
	Lives func(pod types.UID) (pid int, lives bool, err error)

	mu sync.Mutex
	// seen has the pods of each device.
	seen map[string][]types.UID
}

// ExternalAllocations returns the listed allocations, and those of further pods that live. The
// UID stands for the name of such a pod.
func (e *External) ExternalAllocations(ctx context.Context) ([]gpu.ExternalAllocation, error) {
	all, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	given, err := e.Pods()
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read which pods have devices of plugins", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := given
	if seen == nil {
		seen = map[string][]types.UID{}
	}
	for device, pods := range e.seen {
		for _, pod := range pods {
			if !slices.Contains(seen[device], pod) {
				seen[device] = append(seen[device], pod)
			}
		}
	}
	for device, pods := range seen {
		living := slices.DeleteFunc(slices.Clone(pods), func(pod types.UID) bool { return !e.mayLive(ctx, pod) })
		if len(living) > 0 && !slices.ContainsFunc(all, func(a gpu.ExternalAllocation) bool { return a.Device == device }) {
			all = append(all, gpu.ExternalAllocation{Device: device, Pod: string(living[0])})
		}
		if seen[device] = living; len(living) == 0 {
			delete(seen, device)
		}
	}
	e.seen = seen
	slices.SortFunc(all, gpu.CompareExternal)
	return all, nil
}

// mayLive reports whether a pod has a process, or that cannot be read.
func (e *External) mayLive(ctx context.Context, pod types.UID) bool {
	_, lives, err := e.Lives(pod)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read whether a pod lives, its device stays in use", "podUID", pod)
	}
	return lives || err != nil
}
