// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// exclusive lets the driver keep a GPU with shares in the compute mode for MPS.
func exclusive(ctx context.Context, n *node) (err error) {
	defer func() { err = errors.Join(err, n.clean(ctx), n.install(ctx, "default")) }()
	if err := n.install(ctx, "exclusive"); err != nil {
		return err
	}
	p := pod{name: "exclusive", steps: []string{"info", "run", "5", smallKernel}}
	if err := n.claim(ctx, p, "share.nvidia.com", "8Gi", "25"); err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{p.name}, "Running", "Succeeded"); err != nil {
		return err
	}
	mode := func() (string, error) {
		out, err := n.smi(ctx, "--query-gpu=compute_mode", "--format=csv,noheader")
		return strings.TrimSpace(out), err
	}
	during, err := mode()
	if err != nil {
		return err
	}
	lines, err := n.finish(ctx, time.Minute, p)
	if err := errors.Join(err, n.clean(ctx)); err != nil {
		return err
	}
	after, err := mode()
	n.report.check(find(lines[p.name], "run") != nil && during == "Exclusive_Process" && after == "Default", "a share computes while the GPU is in the mode %s, and the mode is %s afterwards", during, after)
	return err
}

// mig cuts the GPU on demand. The GPU is whole again at the end.
func mig(ctx context.Context, n *node) error {
	return n.withMIG(ctx, func() error { return n.cut(ctx, "on demand", 1) })
}

// packedProfile stands in the packed rendering of a layout.
const packedProfile = "3g.71gb"

// layouts cuts the GPU as a file of mig-parted says.
func layouts(ctx context.Context, n *node) error {
	return n.withMIG(ctx, func() (err error) {
		profile, err := n.halfProfile(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.install(ctx, "default")) }()
		if err := n.install(ctx, "layout", packedProfile, profile); err != nil {
			return err
		}
		return n.cut(ctx, "of a layout", 2)
	})
}

// halfProfile returns the published profile of three slices, of which two fit on a GPU.
func (n *node) halfProfile(ctx context.Context) (profile string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = n.until(ctx, func() error {
		out, err := n.kubectl(ctx, "", "get", "resourceslices", "--output", "jsonpath={.items[*].spec.devices[*].attributes.profile.string}")
		i := slices.IndexFunc(strings.Fields(out), func(p string) bool { return strings.HasPrefix(p, "3g.") && !strings.Contains(p, "+") })
		if err != nil || i < 0 {
			return cmp.Or(err, fmt.Errorf("no profile of three slices among %q", out))
		}
		profile = strings.Fields(out)[i]
		return nil
	})
	return profile, err
}

// withMIG runs a story while the node offers MIG devices.
func (n *node) withMIG(ctx context.Context, story func() error) error {
	const label = "gpu.nvidia.com/offer="
	if _, err := n.kubectl(ctx, "", "label", "node", "--all", "--overwrite", label+"mig"); err != nil {
		return err
	}
	err := story()
	_, back := n.kubectl(context.WithoutCancel(ctx), "", "label", "node", "--all", "--overwrite", label+offer)
	return errors.Join(err, back)
}

// cut runs pods with a MIG device each.
func (n *node) cut(ctx context.Context, text string, count int) error {
	pods, err := n.many(ctx, "mig", count, func(string) []string { return []string{"info", "run", "2", smallKernel} }, "mig.nvidia.com", "", "", "")
	if err != nil {
		return err
	}
	lines, err := n.finish(ctx, 3*time.Minute, pods...)
	n.screens(ctx)
	for _, p := range pods {
		info := find(lines[p.name], "info")
		n.report.check(find(lines[p.name], "run") != nil, "a MIG device %s: %.0f multiprocessors, %.0f MiB", text, info.number("multiprocessors"), info.number("totalMiB"))
	}
	return errors.Join(err, n.clean(ctx))
}
