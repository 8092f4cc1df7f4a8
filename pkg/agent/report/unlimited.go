// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// withLimits adds a condition to each limited device on which a container computes
// without its memory limit. It also adds one if that is unknown. The container is one
// of the claim.
func (s *claimStatus) withLimits(devices []claim.Device, checks []claim.LimitCheck) *claimStatus {
	for i := range s.devices {
		d := &s.devices[i]
		isLimited := slices.ContainsFunc(devices, func(device claim.Device) bool {
			return device.Name.String() == d.device && device.Terms.Limit != nil
		})
		if isLimited {
			d.more = append(d.more, limitConditions(d.device, s.claim.UID, checks)...)
		}
	}
	return s
}

// limitConditions returns the condition of a limited device of a claim; none if all
// containers have their limit. Its text stays the same while nothing changes, so that it is
// written once.
func limitConditions(device string, uid types.UID, checks []claim.LimitCheck) []condition {
	i := slices.IndexFunc(checks, func(c claim.LimitCheck) bool { return c.Device.String() == device && slices.Contains(c.Claims, uid) })
	if i >= 0 {
		for _, u := range checks[i].Unlimited {
			if slices.Contains(u.Claims, uid) {
				return []condition{{
					kind: v1alpha1.ConditionMemoryUnlimited, reason: v1alpha1.ReasonNoHook,
					message: fmt.Sprintf("the container of process %d computes without its memory limit: its runtime has not run the driver's hook, or the driver has lost the limit; see %s", u.PID, gpu.Page("docs/user/events.md#when-a-share-does-not-start")),
				}}
			}
		}
		if checks[i].Err == nil {
			return nil
		}
	}
	return []condition{{
		kind: v1alpha1.ConditionMemoryUnlimited, reason: v1alpha1.ReasonProcessesUnknown, unknown: true,
		message: "whether each container has its memory limit cannot be checked; the agent's log has the reason",
	}}
}
