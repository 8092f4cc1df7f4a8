// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Holder is a claim that holds devices, and its object in the API.
type Holder struct {
	claim.Claim
	Object *resourceapi.ResourceClaim
}

// Findings are uses and losses of held devices that the API does not show.
type Findings struct {
	Foreign   []claim.ForeignProcess
	Limits    []claim.LimitCheck
	Conflicts map[kind.Name][]Conflict
	Daemons   []MPSDaemon
}

// Prepared queues the status of prepared claims that is not up to date, with a condition for each
// finding about their devices.
func (r *Reporter) Prepared(ctx context.Context, holders []Holder, found Findings) {
	byCause := map[string]int{}
	for _, h := range holders {
		r.shares.hold(h.Object, h.Devices)
		status := readyStatus(nameOf(h.Object), h.Devices, r.Clock.Now()).withForeignProcesses(found.Foreign).withLimits(h.Devices, found.Limits).withConflicts(h.Devices, found.Conflicts)
		status = r.withDisturbances(ctx, status, h, found.Daemons)
		status.countDisturbances(byCause)
		r.setStatus(h.Object, status)
	}
	r.Observer.DisturbedShares(byCause)
}

// inUseMessage describes a foreign use of a device, its effect and its remedy. Tenants read it,
// so it names no pod.
func inUseMessage(value, node string) string {
	c, _ := cause.Of(v1alpha1.TaintInUse, value)
	c = c.For(node, "", "")
	return fmt.Sprintf("%s; %s; the administrator's remedy: %s", c.Meaning, c.Effect, c.Admin)
}

// withForeignProcesses adds a condition to the devices on which a foreign process computes.
func (s *claimStatus) withForeignProcesses(foreign []claim.ForeignProcess) *claimStatus {
	for i := range s.devices {
		d := &s.devices[i]
		for _, process := range foreign {
			if process.Device.String() != d.device || !slices.Contains(process.Claims, s.claim.UID) {
				continue
			}
			d.more = append(d.more, condition{
				kind: v1alpha1.ConditionForeignProcess, reason: v1alpha1.ReasonNoClaim,
				message: fmt.Sprintf("process %d: %s", process.PID, inUseMessage(v1alpha1.InUseTaintForeignProcess, d.pool)),
			})
			break
		}
	}
	return s
}

// Conflict is another program of the node that allocates a device that claims hold.
type Conflict int

// The conflicts of a held device.
const (
	// ConflictDevicePlugin means that a device plugin has given the device to a pod.
	ConflictDevicePlugin Conflict = iota
	// ConflictOtherDriver means that another driver of the same name serves the node.
	ConflictOtherDriver
)

// condition returns the condition of a device of the node with the conflict. Tenants read it, so it
// names no pod.
func (c Conflict) condition(node string) condition {
	if c == ConflictOtherDriver {
		return condition{
			kind: v1alpha1.ConditionOtherDriver, reason: v1alpha1.ReasonSameName,
			message: "another driver of the same name serves the node, and gets the calls for this claim; an administrator removes one of the two drivers from the node",
		}
	}
	return condition{
		kind: v1alpha1.ConditionExternallyAllocated, reason: v1alpha1.ReasonDevicePlugin,
		message: inUseMessage(v1alpha1.InUseTaintDevicePlugin, node),
	}
}

// withConflicts adds a condition to the devices of the claim for each of their conflicts.
func (s *claimStatus) withConflicts(devices []claim.Device, conflicts map[kind.Name][]Conflict) *claimStatus {
	for i := range s.devices {
		d := &s.devices[i]
		if at := slices.IndexFunc(devices, func(device claim.Device) bool { return device.Name.String() == d.device }); at >= 0 {
			for _, c := range conflicts[devices[at].Name] {
				d.more = append(d.more, c.condition(d.pool))
			}
		}
	}
	return s
}

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
