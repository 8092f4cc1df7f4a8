// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
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
