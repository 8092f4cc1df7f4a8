// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// findContested finds the devices that are in use by another pod or claim than the API
// shows. It lists the foreign processes, counts them, checks the memory limits,
// and queues the device status of each prepared claim that is not up to date.
func (p *Plugin) findContested(ctx context.Context, needs []needed, found []unneeded) {
	held, uids := make([]claim.Claim, 0, len(needs)), make([]types.UID, 0, len(needs))
	for _, n := range needs {
		held, uids = append(held, n.Claim), append(uids, n.UID)
	}
	foreign, checked, err := p.foreignProcesses(ctx, held)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for processes without a claim, will try again", "after", p.ReconcileInterval)
	}
	byDevice := map[string]int{}
	for _, s := range foreign {
		byDevice[s.Device.String()]++
	}
	p.Observer.ForeignProcesses(byDevice)
	p.Foreign.SetForeignProcesses(foreign, checked)
	unneeded := make([]types.UID, 0, len(found))
	for _, u := range found {
		unneeded = append(unneeded, u.UID)
	}
	p.Ledger.SetContested(uids, unneeded, foreign)
	checks := p.checkLimits(ctx)
	p.disturbed = p.disturbedDaemons(ctx)
	byCause := map[string]int{}
	for _, n := range needs {
		if n.Phase != claim.Prepared || p.refused[n.UID] || p.Ledger.IsRefused(n.UID) {
			continue // the status of the failed prepare or unprepare has the reason
		}
		p.shares.hold(n.object, n.Devices)
		status := readyStatus(nameOf(n.object), n.Devices, p.Clock.Now()).withForeignProcesses(foreign).withLimits(n.Devices, checks).withConflicts(ctx, n.Devices, p.Conflicts)
		status = p.withDisturbances(ctx, status, n)
		status.countDisturbances(byCause)
		p.setStatus(n.object, status)
	}
	p.Observer.DisturbedShares(byCause)
}

func (p *Plugin) foreignProcesses(ctx context.Context, held []claim.Claim) ([]claim.ForeignProcess, []kind.Name, error) {
	defer p.Tasks.Begin()()
	return p.Claims.ForeignProcesses(ctx, held)
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
