// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

// comparePeriods is how often both drivers run in turn. So both have the same share of a
// machine that is busy at times.
const comparePeriods = 4

// driver is one of the two that are compared.
type driver struct {
	// whole and partitions return the driver's command. With the second one it also cuts MIG
	// devices on demand.
	whole, partitions func(b *bench) []string
	side              side
}

// side has the measurements of a driver.
type side struct {
	Start, Prepare, Unprepare, Burst []time.Duration
	MIGPrepare, MIGUnprepare         []time.Duration
	// CPU is the processor time of a claim, from prepare to unprepare.
	CPU []time.Duration
	// Resident memory after the start and after all claims, in bytes.
	ResidentIdle, Resident int64
	// Calls of NVML for a claim, from prepare to unprepare.
	Calls float64
	// Bytes of the published slices as JSON, with whole GPUs and with MIG devices.
	Bytes, MIGBytes int
}

// ours is the command of our agent with flags.
func ours(flags ...string) func(*bench) []string {
	return func(b *bench) []string { return b.agentCommand(flags...) }
}

// nvidias is the command of NVIDIA's driver. Its client has no limit, because with its default
// of five requests a second it would measure that limit.
func nvidias(flags ...string) func(*bench) []string {
	return func(b *bench) []string {
		return harness.Foreign{Program: "gpu-kubelet-plugin", Machine: b.root, Args: append([]string{
			"--kubeconfig=" + b.kubeconfig, "--node-name=" + b.node, "--namespace=" + b.namespace, "--image-name=none",
			"--container-driver-root=" + b.root, "--nvidia-driver-root=" + b.root, "--cdi-root=" + b.cdiDir,
			"--nvidia-cdi-hook-path=" + filepath.Join(b.bin, "nvidia-cdi-hook"),
			"--kubelet-plugins-directory-path=" + filepath.Join(b.dir, "plugins"), "--kubelet-registrar-directory-path=" + filepath.Join(b.dir, "registry"),
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		}, flags...)}.Command(b.bin)
	}
}

// compareDrivers measures our agent and NVIDIA's DRA driver on the same simulated node, in
// turn.
func (b *bench) compareDrivers(ctx context.Context) ([]comparison, error) {
	drivers := []*driver{
		{whole: ours("--mps-supervisor=", "--memory-limits=false"), partitions: ours("--mps-supervisor=", "--memory-limits=false", "--offer=mig", "--mig-profiles=all")},
		{whole: nvidias(), partitions: nvidias("--feature-gates=DynamicMIG=true")},
	}
	for period := range comparePeriods {
		progress("period %d of %d", period+1, comparePeriods)
		for _, d := range drivers {
			if err := b.compareWhole(ctx, d); err != nil {
				return nil, err
			}
			if err := b.comparePartitions(ctx, d); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range drivers {
		if err := b.countCalls(ctx, d); err != nil {
			return nil, err
		}
	}
	return compared(drivers[0].side, drivers[1].side), nil
}

// run starts a driver without slices and records of an earlier one, and calls use. It returns
// the time until the slices were published.
func (b *bench) run(ctx context.Context, command []string, use func(a *agent) error) (published time.Duration, err error) {
	if err := b.deleteSlices(ctx); err != nil {
		return 0, err
	}
	// NVIDIA's driver keeps a record of the boot and a CDI spec of all GPUs.
	for _, folder := range []string{filepath.Join(b.dir, "plugins"), b.cdiDir} {
		if err := emptyFolder(folder); err != nil {
			return 0, err
		}
	}
	a, published, err := b.startCommand(ctx, command)
	if err != nil {
		return 0, err
	}
	defer a.kill()
	if err := use(a); err != nil {
		return 0, fmt.Errorf("%w; the driver said:\n%s", err, a.log)
	}
	return published, a.stop()
}

func emptyFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) compareWhole(ctx context.Context, d *driver) error {
	s := &d.side
	published, err := b.run(ctx, d.whole(b), func(a *agent) error {
		var err error
		if s.ResidentIdle, err = a.resident(); err != nil {
			return err
		}
		if s.Bytes, err = b.sliceBytes(ctx); err != nil {
			return err
		}
		devices, err := b.devices(ctx)
		if err != nil {
			return err
		}
		var f figures
		before, err := a.processorTime()
		if err != nil {
			return err
		}
		rounds := max(1, b.rounds/comparePeriods)
		for i := range rounds {
			if err := b.round(ctx, a, devices[i%len(devices)], &f); err != nil {
				return err
			}
		}
		after, err := a.processorTime()
		if err != nil {
			return err
		}
		s.CPU = append(s.CPU, (after-before)/time.Duration(rounds))
		for range max(1, b.bursts/comparePeriods) {
			if err := b.burst(ctx, a, devices[:gpusAtOnce], &f); err != nil {
				return err
			}
		}
		s.Prepare, s.Unprepare, s.Burst = append(s.Prepare, f.Prepare...), append(s.Unprepare, f.Unprepare...), append(s.Burst, f.Burst...)
		s.Resident, err = a.resident()
		return err
	})
	s.Start = append(s.Start, published)
	return err
}

// comparePartitions prepares and unprepares MIG devices while another one of the same GPU
// keeps its MIG mode on.
func (b *bench) comparePartitions(ctx context.Context, d *driver) error {
	s := &d.side
	_, err := b.run(ctx, d.partitions(b), func(a *agent) error {
		var err error
		if s.MIGBytes, err = b.sliceBytes(ctx); err != nil {
			return err
		}
		measured, other, err := b.smallMIGDevices(ctx)
		if err != nil {
			return err
		}
		keeper, err := b.claim(ctx, other)
		if err != nil {
			return err
		}
		if _, err := a.prepare(ctx, keeper); err != nil {
			return err
		}
		var f figures
		for range max(1, b.rounds/comparePeriods) {
			if err := b.round(ctx, a, measured, &f); err != nil {
				return err
			}
		}
		s.MIGPrepare, s.MIGUnprepare = append(s.MIGPrepare, f.Prepare...), append(s.MIGUnprepare, f.Unprepare...)
		return b.drop(ctx, a, keeper)
	})
	return err
}

// smallMIGDevices returns the names of two MIG devices of one GPU that fit at the same time:
// the first and the last of the smallest profile.
func (b *bench) smallMIGDevices(ctx context.Context) (first, last string, err error) {
	var names []string
	var parent string
	err = b.eachDevice(ctx, func(device resourceapi.Device) {
		profile, gpu := text(device, "profile"), text(device, "parentUUID")
		if profile == "1g.10gb" && (parent == "" || parent == gpu) {
			parent = gpu
			names = append(names, device.Name)
		}
	})
	if err == nil && len(names) < 2 {
		err = fmt.Errorf("model %s has no two MIG devices 1g.10gb on a GPU", b.model)
	}
	if err != nil {
		return "", "", err
	}
	slices.Sort(names)
	return names[0], names[len(names)-1], nil
}

// countCalls counts the calls of NVML of a claim for a whole GPU. It is a separate run,
// because each call writes to a file.
func (b *bench) countCalls(ctx context.Context, d *driver) error {
	file := filepath.Join(b.dir, "nvml-calls")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	command := append([]string{"env", "GPU_SIM_CALLS=" + file}, d.whole(b)...)
	_, err := b.run(ctx, command, func(a *agent) error {
		devices, err := b.devices(ctx)
		if err != nil {
			return err
		}
		count := func() (int64, error) {
			info, err := os.Stat(file)
			if err != nil {
				return 0, err
			}
			return info.Size(), nil
		}
		before, err := count()
		if err != nil {
			return err
		}
		var f figures
		for i := range gpusAtOnce {
			if err := b.round(ctx, a, devices[i], &f); err != nil {
				return err
			}
		}
		after, err := count()
		d.side.Calls = float64(after-before) / gpusAtOnce
		return err
	})
	return err
}

// sliceBytes returns the size of the node's slices as JSON.
func (b *bench) sliceBytes(ctx context.Context) (int, error) {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node})
	if err != nil {
		return 0, err
	}
	size := 0
	for _, slice := range list.Items {
		text, err := json.Marshal(slice.Spec)
		if err != nil {
			return 0, err
		}
		size += len(text)
	}
	return size, nil
}

func (b *bench) eachDevice(ctx context.Context, visit func(resourceapi.Device)) error {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node})
	if err != nil {
		return err
	}
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			visit(device)
		}
	}
	return nil
}

func text(device resourceapi.Device, attribute resourceapi.QualifiedName) string {
	if a := device.Attributes[attribute]; a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// processorTime returns the processor time of the driver's threads since their start. Threads
// of Go stay until the process ends.
func (a *agent) processorTime() (time.Duration, error) {
	threads, err := procfs.AllThreads(a.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, thread := range threads {
		stat, err := thread.Schedstat()
		if err != nil {
			return 0, err
		}
		sum += time.Duration(stat.RunningNanoseconds) //nolint:gosec // it does not overflow in 292 years
	}
	return sum, nil
}

// comparison is one row of the table.
type comparison struct {
	Figure string  `json:"figure"`
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
	// Ratio is theirs by ours: above 1 ours is better.
	Ratio float64 `json:"ratio"`
	Unit  string  `json:"unit"`
}

func compared(ours, theirs side) []comparison {
	var rows []comparison
	add := func(figure, unit string, a, b float64) {
		rows = append(rows, comparison{Figure: figure, Ours: a, Theirs: b, Ratio: b / a, Unit: unit})
	}
	times := func(figure string, a, b []time.Duration) {
		for _, q := range []struct {
			name string
			part float64
		}{{"median", .5}, {"p95", .95}} {
			add(figure+", "+q.name, "ms", quantile(a, q.part), quantile(b, q.part))
		}
	}
	times("prepare of a whole GPU", ours.Prepare, theirs.Prepare)
	times("unprepare of a whole GPU", ours.Unprepare, theirs.Unprepare)
	times("8 claims on 8 GPUs at once", ours.Burst, theirs.Burst)
	times("prepare of a MIG device", ours.MIGPrepare, theirs.MIGPrepare)
	times("unprepare of a MIG device", ours.MIGUnprepare, theirs.MIGUnprepare)
	add("start to published, median", "ms", quantile(ours.Start, .5), quantile(theirs.Start, .5))
	add("processor time of a claim, median", "ms", quantile(ours.CPU, .5), quantile(theirs.CPU, .5))
	add("calls of NVML for a claim", "", ours.Calls, theirs.Calls)
	add("resident memory after start", "MB", float64(ours.ResidentIdle)/1e6, float64(theirs.ResidentIdle)/1e6)
	add("resident memory after the claims", "MB", float64(ours.Resident)/1e6, float64(theirs.Resident)/1e6)
	add("slices of whole GPUs", "kB", float64(ours.Bytes)/1e3, float64(theirs.Bytes)/1e3)
	add("slices with all MIG devices", "kB", float64(ours.MIGBytes)/1e3, float64(theirs.MIGBytes)/1e3)
	return rows
}

// quantile returns a quantile of durations in milliseconds.
func quantile(samples []time.Duration, part float64) float64 {
	sorted := slices.SortedFunc(slices.Values(samples), cmp.Compare[time.Duration])
	return milliseconds(sorted[min(len(sorted)-1, int(part*float64(len(sorted))))])
}

// reportComparison prints the rows as a table or as JSON.
func reportComparison(w io.Writer, format string, rows []comparison) error {
	if format == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tOURS\tNVIDIA'S\tNVIDIA'S / OURS") //nolint:errcheck // Flush reports it
	for _, r := range rows {
		//nolint:errcheck // Flush reports it
		fmt.Fprintf(table, "%s\t%.3g %s\t%.3g %s\t%.2f\n", r.Figure, r.Ours, r.Unit, r.Theirs, r.Unit, r.Ratio)
	}
	return table.Flush()
}
