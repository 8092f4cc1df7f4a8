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

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/allocatortest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// memoryLimit is the design's limit of an agent's anonymous memory, in MB.
const memoryLimit = 25

// figures are the raw measurements of a run: samples of times in milliseconds, of memory in
// MB, and of sizes in kB.
type figures struct {
	Start, Prepare, Unprepare, Burst []float64
	// DurableWrite and Get are yardsticks: a synced write of 2 kB to the same disk,
	// and one read of a claim from the same API server, which prepare includes. GetCached
	// does not wait for etcd, and can be of an older claim.
	DurableWrite, Get, GetCached []float64
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
	// MIG devices made on demand. They are empty if only our agent is measured.
	MIGPrepare, MIGUnprepare, MIGSliceSize []float64

	// MIG, on a model that has it. Partitions is the size of a burst.
	PartitionPrepare, PartitionUnprepare, PartitionBurst []float64
	Partitions                                           int
	MemoryPartitions                                     float64
	// SimCreate and SimDestroy are the simulator's own times to create and destroy the
	// partition. Prepare and unprepare include them.
	SimCreate, SimDestroy []float64
	Allocator             []allocatortest.Comparison

	// MPS shares: the first on a GPU, a further one, the last to be removed, and the
	// most clients of a GPU at once. DaemonStart and DaemonStop are the supervisor's
	// own times, which the first and the last include.
	FirstShare, LastShare, Share, ShareUnprepare, FullGPU []float64
	DaemonStart, DaemonStop                               []float64
	MemoryShares                                          float64

	// Memory limits: a plain share without and with them, the start of a process in a
	// separate cgroup, and the hook of the share for it with and without the agent. SimLimit
	// is the simulator's own time to set the limit, which the hook includes. All are empty on
	// a machine without cgroups of version 2.
	PlainShare, LimitedShare                       []float64
	ProcessStart, Hook, HookWithoutAgent, SimLimit []float64

	// Calls of NVML on the simulated node, through its libnvidia-ml.so.1 and through the
	// simulator in this process: callsPerSample readings of a GPU's memory, and a snapshot
	// of the whole node.
	LibraryCall, LinkedCall         []float64
	LibrarySnapshot, LinkedSnapshot []float64
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
		write, get, latency("the same from the cache of the API server (yardstick)", f.GetCached, 0),
		less("prepare less read: our own", f.Prepare, f.Get),
		ratio("prepare / durable write", prepare, write),
		ratio("prepare / read of a claim", prepare, get),
		ratio("8 at once / one", burst, prepare),
		ratio("unprepare / prepare", latency("", f.Unprepare, 0), prepare),
		ratio(fmt.Sprintf("a slot with %d others / alone", othersHeld), latency("", f.ProcessorCrowded, 0), latency("", f.ProcessorAlone, 0)),
	)
	lines = append(lines, f.libraryLines()...)
	lines = append(lines, f.shareLines()...)
	if len(f.Hook) > 0 {
		lines = append(lines, f.limitLines()...)
	}
	if len(f.PartitionPrepare) > 0 {
		lines = append(lines, f.partitionLines()...)
	}
	return lines
}

func (f *figures) shareLines() []Line {
	first, last := latency("prepare of the first share on a GPU", f.FirstShare, 200), latency("unprepare of the last share on a GPU", f.LastShare, 0)
	started, stopped := latency("the supervisor's start of a daemon (yardstick)", f.DaemonStart, 0), latency("the supervisor's stop of it (yardstick)", f.DaemonStop, 0)
	further := latency("prepare of a further share", f.Share, 3)
	full := latency(fmt.Sprintf("%d shares of one GPU at once, all of them", gpu.MPSMaxClients), f.FullGPU, 0)
	return []Line{
		first, started, less("first share less start: our own", f.FirstShare, f.DaemonStart),
		further, latency("unprepare of it", f.ShareUnprepare, 0),
		last, stopped, less("last share less stop: our own", f.LastShare, f.DaemonStop),
		full, ratio(fmt.Sprintf("%d at once / one", gpu.MPSMaxClients), full, further),
		memory("anonymous memory after all shares", f.MemoryShares),
	}
}

func (f *figures) libraryLines() []Line {
	call := latency(fmt.Sprintf("%d calls of the simulated libnvidia-ml.so.1", callsPerSample), f.LibraryCall, 0)
	linked := latency("the same calls of the linked simulator", f.LinkedCall, 0)
	snapshot, direct := latency("snapshot of the node through the library", f.LibrarySnapshot, 0), latency("snapshot of the node, simulator linked", f.LinkedSnapshot, 0)
	return []Line{call, linked, ratio("call through the library / linked", call, linked), snapshot, direct, ratio("snapshot through the library / linked", snapshot, direct)}
}

func (f *figures) limitLines() []Line {
	plain, limited := latency("prepare of a plain share without memory limits", f.PlainShare, 0), latency("prepare of a plain share with memory limits", f.LimitedShare, 0)
	start, set := latency("start of a process in a cgroup (yardstick)", f.ProcessStart, 0), latency("the simulator's set of a limit (yardstick)", f.SimLimit, 0)
	hook := latency("a held share adds to a container's start (its hook)", f.Hook, 6)
	away := latency("the same while the agent is away", f.HookWithoutAgent, 15)
	// Different agents prepared, so there is no pair of samples to subtract.
	more := Line{Figure: "a held share adds to prepare", Median: limited.Median - plain.Median, Unit: "ms", Design: 1, Samples: min(limited.Samples, plain.Samples)}
	return []Line{
		plain, limited, more.judged(), ratio("with memory limits / without", limited, plain),
		hook, start, ratio("hook / start of a process", hook, start), away, ratio("hook without the agent / start of a process", away, start),
		set, less("hook less set: our own", f.Hook, f.SimLimit),
	}
}

func (f *figures) partitionLines() []Line {
	prepare, unprepare := latency("prepare of a MIG partition, mode on", f.PartitionPrepare, 0), latency("unprepare of a MIG partition", f.PartitionUnprepare, 0)
	create, destroy := latency("the simulator's create of it (yardstick)", f.SimCreate, 0), latency("the simulator's destroy of it (yardstick)", f.SimDestroy, 0)
	burst := latency(fmt.Sprintf("%d partitions at once from mode off, all of them", f.Partitions), f.PartitionBurst, 0)
	lines := []Line{
		prepare, create, ratio("prepare / create", prepare, create), less("prepare less create: our own", f.PartitionPrepare, f.SimCreate),
		unprepare, destroy, ratio("unprepare / destroy", unprepare, destroy), less("unprepare less destroy: our own", f.PartitionUnprepare, f.SimDestroy),
		burst, ratio(fmt.Sprintf("%d at once / one", f.Partitions), burst, prepare),
		memory("anonymous memory after all partitions", f.MemoryPartitions),
	}
	for _, c := range f.Allocator {
		lines = append(lines,
			Line{Figure: "allocator: " + c.Claim, Median: milliseconds(c.Ours), Unit: "ms", Samples: f.allocations()},
			Line{Figure: "  naive slices / ours", Median: float64(c.Naive) / float64(c.Ours), Unit: "times", Samples: f.allocations()},
		)
	}
	return lines
}

// allocations is the same number as the rounds of prepare.
func (f *figures) allocations() int { return len(f.PartitionPrepare) }

// less returns the differences between two samples of the same round. The difference
// between a call to the agent and the simulator's work is an upper limit of the
// agent's own cost, because the agent reads the simulated GPU too.
func less(name string, samples, others []float64) Line {
	differences := make([]float64, len(samples))
	for i := range samples {
		differences[i] = samples[i] - others[i]
	}
	return latency(name, differences, 0)
}

func latency(name string, samples []float64, design float64) Line {
	return line(name, "ms", samples, design)
}

func memory(name string, amount float64) Line {
	return line(name, "MB", []float64{amount}, memoryLimit)
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
