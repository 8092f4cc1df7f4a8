// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// memoryLimit is the design's limit of an agent's anonymous memory, in MB.
const memoryLimit = 25

// figures are the raw measurements of a run: samples of times in milliseconds, of memory in
// MB, and of sizes in kB.
type figures struct {
	Start, Prepare, Unprepare, Burst []float64
	// DurableWrite and Get are yardsticks: a synced write of 2 kB to the same disk,
	// and one read of a claim from the same API server, which prepare includes.
	DurableWrite, Get []float64
	// Processor is the processor time of a claim, from prepare to unprepare.
	Processor []float64
	// ProcessorAlone is the processor time of a claim of a slot on an empty node.
	// ProcessorCrowded and MemoryCrowded are with othersHeld other claims. All are empty for
	// a driver without slots.
	ProcessorAlone, ProcessorCrowded, MemoryCrowded []float64
	// PrepareCalls and UnprepareCalls are system calls, and NVMLCalls those of NVML for a claim.
	// The first two are empty on a kernel that cannot count them.
	PrepareCalls, UnprepareCalls, NVMLCalls []float64
	// MemoryIdle and Memory are anonymous memory after the start and after the claims.
	MemoryIdle, Memory []float64
	// SliceSize is the size of the published slices as JSON.
	SliceSize []float64
	// MIG devices made on demand.
	MIGPrepare, MIGUnprepare, MIGSliceSize, MemoryMIG []float64

	// MPS shares: the first on a GPU, a further one, and the last to be removed.
	FirstShare, LastShare, Share, ShareUnprepare []float64

	// Memory limits: a plain share without and with them, the start of a process in a
	// separate cgroup, and the hook of the share for it with and without the agent. All are
	// empty on a machine without cgroups of version 2.
	PlainShare, LimitedShare             []float64
	ProcessStart, Hook, HookWithoutAgent []float64
}

// figure is a figure that is measured of every driver.
type figure struct {
	name, unit string
	// design is the limit of the design, or 0 if there is none.
	design  float64
	samples []float64
}

// ofDriver returns the figures that were measured of a driver, in the order of the reports.
func (f *figures) ofDriver() []figure {
	return slices.DeleteFunc([]figure{
		{"prepare of a whole GPU", "ms", 2, f.Prepare},
		{"unprepare of a whole GPU", "ms", 1, f.Unprepare},
		{"8 claims on 8 GPUs at once", "ms", 10, f.Burst},
		{"prepare of a MIG device", "ms", 0, f.MIGPrepare},
		{"unprepare of a MIG device", "ms", 0, f.MIGUnprepare},
		{"start to published", "ms", 1000, f.Start},
		{"processor time of a claim", "ms", 0, f.Processor},
		{"processor time of a slot", "ms", 0, f.ProcessorAlone},
		{fmt.Sprintf("processor time of a slot with %d others", othersHeld), "ms", 0, f.ProcessorCrowded},
		{"system calls of prepare", "", 0, f.PrepareCalls},
		{"system calls of unprepare", "", 0, f.UnprepareCalls},
		{"calls of NVML for a claim", "", 0, f.NVMLCalls},
		{"anonymous memory after start", "MB", memoryLimit, f.MemoryIdle},
		{"anonymous memory after the claims", "MB", memoryLimit, f.Memory},
		{fmt.Sprintf("anonymous memory with %d claims", othersHeld), "MB", memoryLimit, f.MemoryCrowded},
		{"slices of whole GPUs", "kB", 0, f.SliceSize},
		{"slices with all MIG devices", "kB", 0, f.MIGSliceSize},
	}, func(f figure) bool { return len(f.samples) == 0 })
}

// Line is one row of the report.
type Line struct {
	Figure string  `json:"figure"`
	Median float64 `json:"median"`
	// P99 is 0 if there are too few samples.
	P99  float64 `json:"p99,omitempty"`
	Unit string  `json:"unit"`
	// Design is the limit of the design, or 0 for yardsticks and ratios.
	Design float64 `json:"design,omitempty"`
	// Verdict is "within", "over" or empty.
	Verdict string `json:"verdict,omitempty"`
	Samples int    `json:"samples"`
}

func (f *figures) lines() []Line {
	var lines []Line
	for _, figure := range f.ofDriver() {
		lines = append(lines, line(figure.name, figure.unit, figure.samples, figure.design))
	}
	prepare, burst := latency("", f.Prepare, 0), latency("", f.Burst, 0)
	write, get := latency("one durable write of 2 kB (yardstick)", f.DurableWrite, 0), latency("one read of a claim (yardstick)", f.Get, 0)
	lines = append(lines,
		write, get,
		ratio("prepare / read of a claim", prepare, get),
		ratio("8 at once / one", burst, prepare),
		ratio("unprepare / prepare", latency("", f.Unprepare, 0), prepare),
		ratio(fmt.Sprintf("a slot with %d others / alone", othersHeld), latency("", f.ProcessorCrowded, 0), latency("", f.ProcessorAlone, 0)),
	)
	lines = append(lines, line("anonymous memory with all MIG devices", "MB", f.MemoryMIG, memoryLimit))
	lines = append(lines, f.shareLines(prepare)...)
	if len(f.Hook) > 0 {
		lines = append(lines, f.limitLines()...)
	}
	return lines
}

func (f *figures) shareLines(whole Line) []Line {
	further := latency("prepare of a further share", f.Share, 3)
	return []Line{
		latency("prepare of the first share on a GPU", f.FirstShare, 200), latency("unprepare of the last share on a GPU", f.LastShare, 0),
		further, latency("unprepare of it", f.ShareUnprepare, 0),
		ratio("further share / whole GPU", further, whole),
	}
}

func (f *figures) limitLines() []Line {
	plain, limited := latency("prepare of a plain share without memory limits", f.PlainShare, 0), latency("prepare of a plain share with memory limits", f.LimitedShare, 0)
	start := latency("start of a process in a cgroup (yardstick)", f.ProcessStart, 0)
	hook := latency("a held share adds to a container's start (its hook)", f.Hook, 6)
	away := latency("the same while the agent is away", f.HookWithoutAgent, 15)
	// Different agents prepared, so there is no pair of samples to subtract.
	more := Line{Figure: "a held share adds to prepare", Median: limited.Median - plain.Median, Unit: "ms", Design: 1, Samples: min(limited.Samples, plain.Samples)}
	return []Line{
		plain, limited, more.judged(), ratio("with memory limits / without", limited, plain),
		hook, start, ratio("hook / start of a process", hook, start), away, ratio("hook without the agent / start of a process", away, start),
	}
}

func latency(name string, samples []float64, design float64) Line {
	return line(name, "ms", samples, design)
}

func line(name, unit string, samples []float64, design float64) Line {
	line := Line{Figure: name, Median: quantile(samples, .5), Unit: unit, Design: design, Samples: len(samples)}
	if len(samples) >= 100 {
		line.P99 = quantile(samples, .99)
	}
	return line.judged()
}

// quantile returns a quantile of samples, between two of them if need be. It returns 0 if there
// are no samples.
func quantile(samples []float64, part float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := part * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

func ratio(name string, a, b Line) Line {
	return Line{Figure: name, Median: a.Median / b.Median, Unit: "times", Samples: min(a.Samples, b.Samples)}
}

func (l Line) judged() Line {
	switch {
	case l.Design == 0:
	case l.Median <= l.Design:
		l.Verdict = "within"
	default:
		l.Verdict = "over"
	}
	return l
}

// report prints rows as a table or as JSON.
func report[T interface{ cells() []string }](w io.Writer, format string, header []string, rows []T) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, strings.Join(header, "\t")) //nolint:errcheck // Flush reports it
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row.cells(), "\t")) //nolint:errcheck // Flush reports it
	}
	return table.Flush()
}

func lineHeader() []string {
	return []string{"FIGURE", "MEDIAN", "P99", "DESIGN", "VERDICT", "SAMPLES"}
}

func (l Line) cells() []string {
	return []string{l.Figure, amount(l.Median, l.Unit), amount(l.P99, l.Unit), limit(l), l.Verdict, strconv.Itoa(l.Samples)}
}

func amount(value float64, unit string) string {
	if value == 0 {
		return "-"
	}
	format := "%.3g %s"
	if value >= 1000 {
		format = "%.0f %s"
	}
	return strings.TrimSpace(fmt.Sprintf(format, value, unit))
}

func limit(l Line) string {
	if l.Design == 0 {
		return "-"
	}
	return fmt.Sprintf("≤ %g %s", l.Design, l.Unit)
}
