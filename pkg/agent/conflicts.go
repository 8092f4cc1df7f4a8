// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// conflicts returns the other programs of the node that allocate a device that claims hold.
// The log names the pod of a device plugin, which is another tenant's.
func (a *agent) conflicts(ctx context.Context, device kind.Name) []report.Conflict {
	var all []report.Conflict
	if pod := a.known.state.Snapshot().ExternalHolder(device); pod != "" {
		klog.FromContext(ctx).Info("A device plugin has given a held device to a pod", "device", device, "pod", pod)
		all = append(all, report.ConflictDevicePlugin)
	}
	if a.serving.rivals.Err() != nil {
		all = append(all, report.ConflictOtherDriver)
	}
	return all
}
