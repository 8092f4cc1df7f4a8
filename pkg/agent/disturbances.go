// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// daemons is [reconcile.Options.Daemons].
func (a *agent) daemons(ctx context.Context) ([]report.MPSDaemon, error) {
	states, err := a.node.supervisor.MPSStates(ctx)
	var all []report.MPSDaemon
	for _, s := range states {
		d := report.MPSDaemon{
			Name: s.Daemon.Name, Interrupted: s.Interrupted,
			// A daemon that starts, also again, has no problem yet.
			IsDown: s.State != gpu.MPSReady && s.Restarts > 0 && s.Problem != "",
		}
		for _, w := range s.Waiting {
			pod := types.UID(a.observers.faults.tasks.PodOf(w.PID))
			if a.claims.SeesPods() && pod != "" && !slices.Contains(d.Waiting, pod) {
				d.Waiting = append(d.Waiting, pod)
			}
		}
		slices.Sort(d.Waiting)
		if d.IsDown || !d.Interrupted.IsZero() || d.Waiting != nil {
			all = append(all, d)
		}
	}
	return all, err
}
