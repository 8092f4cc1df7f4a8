// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// smallKernel leaves most of a GPU idle, fullKernel fills it. Both are numbers of blocks.
	smallKernel = "32"
	fullKernel  = "1056"
)

// rate runs pods that launch a kernel again and again at the same time, and writes their launches per second.
func (n *node) rate(ctx context.Context, name string, count int, seconds, kernel, class, memory, compute, config string) (perSecond float64, err error) {
	return n.work(ctx, name, count, "run", seconds, kernel, fmt.Sprintf("kernel of %s blocks", kernel), class, memory, compute, config)
}

// work runs pods that do a kind of step at the same time, and writes how often they do it in a second.
func (n *node) work(ctx context.Context, name string, count int, kind, seconds, size, text, class, memory, compute, config string) (perSecond float64, err error) {
	pods, err := n.many(ctx, name, count, func(dir string) []string {
		return []string{"info", "barrier", dir, strconv.Itoa(count), kind, seconds, size}
	}, class, memory, compute, config)
	if err != nil {
		return 0, err
	}
	lines, err := n.finish(ctx, 3*time.Minute, pods...)
	return n.workDone(name, text, kind, pods, lines), cmp.Or(err, n.clean(ctx))
}

// workDone writes how often pods did a kind of step in a second, together.
func (n *node) workDone(name, text, kind string, pods []pod, lines map[string][]step) (perSecond float64) {
	least, most, p50, p99 := 1e12, 0.0, 0.0, 0.0
	var multiprocessors []string
	for _, p := range pods {
		run := find(lines[p.name], kind)
		if run.number("perSecond") <= 0 {
			n.report.check(false, "%s printed %v", p.name, lines[p.name])
			continue
		}
		perSecond += run.number("perSecond")
		least, most = min(least, run.number("perSecond")), max(most, run.number("perSecond"))
		p50, p99 = max(p50, run.number("p50ms")), max(p99, run.number("p99ms"))
		multiprocessors = append(multiprocessors, fmt.Sprint(find(lines[p.name], "info").number("multiprocessors")))
	}
	slices.Sort(multiprocessors)
	unit := "tokens"
	if kind == "run" {
		unit = "launches"
	}
	n.report.figure("%s, %s: %.0f %s/s together, least/most %.2f, worst p50 %.3f ms, worst p99 %.3f ms, multiprocessors %s", name, text, perSecond, unit, least/most, p50, p99, strings.Join(slices.Compact(multiprocessors), " "))
	return perSecond
}

// throughput compares shares, time slices and one pod alone with the same kernel.
func throughput(ctx context.Context, n *node) error {
	total := n.total(ctx)
	for _, kernel := range []string{smallKernel, fullKernel} {
		alone, err := n.rate(ctx, "alone", 1, "2", kernel, "gpu.nvidia.com", "", "", "")
		if err != nil {
			return err
		}
		counts := []int{2, 4, 8, 16}
		if kernel == fullKernel {
			counts = []int{4}
		}
		for _, count := range counts {
			memory := fmt.Sprintf("%dMi", (total-2500)/count)
			shares, err := n.rate(ctx, fmt.Sprintf("shares-%d", count), count, "2", kernel, "share.nvidia.com", memory, strconv.Itoa(100/count), "")
			if err != nil {
				return err
			}
			slices, err := n.rate(ctx, fmt.Sprintf("slices-%d", count), count, "2", kernel, "timeslice.nvidia.com", "", "", "")
			if err != nil {
				return err
			}
			n.report.figure("%d shares do %.1f times the work of %d time slices and %.1f times that of one pod alone (kernel of %s blocks)", count, shares/slices, count, shares/alone, kernel)
		}
		memory := fmt.Sprintf("%dMi", (total-2500)/4)
		if _, err := n.rate(ctx, "burst-4", 4, "2", kernel, "share.nvidia.com", memory, "", `"kind": "ShareConfig", "compute": "Burst"`); err != nil {
			return err
		}
		if _, err := n.rate(ctx, "proportional-4", 4, "2", kernel, "share.nvidia.com", memory, "", ""); err != nil {
			return err
		}
	}
	// One small share on an idle GPU, held to its part or not.
	if _, err := n.rate(ctx, "small-burst", 1, "2", fullKernel, "share.nvidia.com", "4Gi", "", `"kind": "ShareConfig", "compute": "Burst"`); err != nil {
		return err
	}
	if _, err := n.rate(ctx, "small-proportional", 1, "2", fullKernel, "share.nvidia.com", "4Gi", "", ""); err != nil {
		return err
	}
	_, err := n.rate(ctx, "seats-4", 4, "2", smallKernel, "seat.nvidia.com", "", "", "")
	return err
}

// crowd runs as many shares as MPS admits, which are together capped to more than the GPU.
func crowd(ctx context.Context, n *node) error {
	// The scheduler rounds the memory up to the least share.
	_, err := n.rate(ctx, "crowd", 48, "4", smallKernel, "share.nvidia.com", "1Gi", "2", "")
	return err
}

// sharing is a way to give a GPU to pods.
type sharing struct {
	name            string
	pods            int
	class           string
	memory, compute string
}

// sharings are the ways that are compared: one pod alone, four shares of equal size, and four time slices.
func (n *node) sharings(ctx context.Context) []sharing {
	return []sharing{
		{"alone", 1, "gpu.nvidia.com", "", ""},
		{"shares-4", 4, "share.nvidia.com", fmt.Sprintf("%dMi", (n.total(ctx)-2500)/4), "25"},
		{"slices-4", 4, "timeslice.nvidia.com", "", ""},
	}
}

// decode launches as many small kernels for each token as a model of 16 layers, as a graph and one by one.
// What waits for the CPU gains most by sharing.
func decode(ctx context.Context, n *node) error {
	const kernels = "128"
	for _, kind := range []string{"graph", "eager"} {
		for _, s := range n.sharings(ctx) {
			text := fmt.Sprintf("%s kernels for a token (%s)", kernels, kind)
			if _, err := n.work(ctx, "decode-"+kind+"-"+s.name, s.pods, kind, "2", kernels, text, s.class, s.memory, s.compute, ""); err != nil {
				return err
			}
		}
	}
	return nil
}
