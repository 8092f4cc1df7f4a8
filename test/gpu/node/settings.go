// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"
)

// intervals claims time slices with another interval.
func intervals(ctx context.Context, n *node) error {
	pods, err := n.many(ctx, "interval", 2, func(string) []string { return []string{"info", "run", "2", smallKernel} }, "timeslice.nvidia.com", "", "",
		`"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}}`)
	if err != nil {
		return err
	}
	lines, err := n.finish(ctx, time.Minute, pods...)
	for _, p := range pods {
		run := find(lines[p.name], "run")
		n.report.check(run != nil, "%s has long time slices: %.0f launches/s, p99 %.3f ms", p.name, run.number("perSecond"), run.number("p99ms"))
	}
	return err
}

// mig cuts the GPU on demand. The GPU is whole again at the end.
func mig(ctx context.Context, n *node) (err error) {
	const label = "gpu.nvidia.com/offer="
	if _, err := n.kubectl(ctx, "", "label", "node", "--all", "--overwrite", label+"mig"); err != nil {
		return err
	}
	defer func() {
		_, back := n.kubectl(ctx, "", "label", "node", "--all", "--overwrite", label+offer)
		err = errors.Join(err, back)
	}()
	claim, err := n.template(ctx, "mig.nvidia.com", "", "", "")
	if err != nil {
		return err
	}
	p := pod{name: "mig", claim: claim, steps: []string{"info", "run", "2", smallKernel}}
	if err := n.start(ctx, p); err != nil {
		return err
	}
	if err := n.await(ctx, 2*time.Minute, []string{p.name}, "Running", "Succeeded"); err != nil {
		return err
	}
	n.screens(ctx)
	lines, err := n.finish(ctx, time.Minute, p)
	info := find(lines[p.name], "info")
	n.report.check(find(lines[p.name], "run") != nil, "a MIG device on demand: %.0f multiprocessors, %.0f MiB", info.number("multiprocessors"), info.number("totalMiB"))
	return errors.Join(err, n.clean(ctx))
}
