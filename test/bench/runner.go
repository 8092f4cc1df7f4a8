// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// driver is a driver to measure, on a node of its own.
type driver struct {
	*bench
	name string
	// whole, mig and slots are its commands. With mig it creates MIG devices on demand, and
	// with slots it has many claims of each GPU. slots is nil if it cannot.
	whole, mig, slots []string
	figures           figures

	// agent is the running process, and published the time until it had published its slices.
	agent     *agent
	published float64
	// gpus are the devices that it has published. withSlots are its devices that have slots.
	gpus, withSlots []string
	// migDevice is the MIG device to measure, and keeper the claim of another one of the same GPU.
	migDevice string
	keeper    *resourceapi.ResourceClaim
	// before is its processor time before the claims of a period.
	before float64
}

// newAgent returns an agent of this project: ours or that of another commit.
func newAgent(b *bench, name, program string) *driver {
	return &driver{
		bench: b, name: name,
		whole: b.agentCommand(program, "--mps-supervisor="),
		mig:   b.agentCommand(program, "--mps-supervisor=", "--offer=mig", "--mig-profiles=all"),
		slots: b.agentCommand(program, "--mps-supervisor=", "--offer=timeslice", fmt.Sprintf("--timeslice-slots=%d", slotsOfGPU)),
	}
}

// newNVIDIAs returns NVIDIA's driver. Its client has no limit, because with its default of five
// requests a second the figures would be those of that limit.
func newNVIDIAs(b *bench) *driver {
	command := func(flags ...string) []string {
		return harness.Foreign{Program: "gpu-kubelet-plugin", Machine: b.root, Args: append([]string{
			"--kubeconfig=" + b.kubeconfig, "--node-name=" + b.node, "--namespace=" + b.namespace, "--image-name=none",
			"--container-driver-root=" + b.root, "--nvidia-driver-root=" + b.root, "--cdi-root=" + b.cdiDir,
			"--nvidia-cdi-hook-path=" + filepath.Join(b.bin, "nvidia-cdi-hook"),
			"--kubelet-plugins-directory-path=" + filepath.Join(b.dir, "plugins"), "--kubelet-registrar-directory-path=" + filepath.Join(b.dir, "registry"),
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		}, flags...)}.Command(b.bin)
	}
	return &driver{bench: b, name: "NVIDIA's", whole: command(), mig: command("--feature-gates=DynamicMIG=true")}
}

// runner measures drivers that run at the same time. They do each step one after the other, so
// that all have the same share of a machine that is busy at times.
type runner struct {
	options
	drivers []*driver
	// tracepoint counts system calls. It is 0 if the kernel has none.
	tracepoint uint64
}

// each does a step with each driver. Their order is A B in steps of even number, and B A in
// the others.
func (r *runner) each(number int, step func(*driver) error) error {
	ordered := slices.Clone(r.drivers)
	if number%2 == 1 {
		slices.Reverse(ordered)
	}
	for _, d := range ordered {
		if err := step(d); err != nil {
			if d.agent != nil {
				err = d.agent.failed(err)
			}
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// measure measures claims of whole GPUs and of MIG devices. The drivers restart in each period.
func (r *runner) measure(ctx context.Context) error {
	var err error
	if r.tracepoint, err = systemCallsTracepoint(); err != nil {
		progress("no figures of system calls: %v", err)
	}
	whole := func(d *driver) []string { return d.whole }
	// The first start reads the program from the disk and is not measured.
	if err := r.together(ctx, 0, whole, func() error { return nil }); err != nil {
		return err
	}
	for period := range r.starts {
		progress("period %d of %d: start, claims one at a time and %d at once", period+1, r.starts, gpusAtOnce)
		if err := r.together(ctx, period, whole, func() error { return r.claims(ctx, period) }); err != nil {
			return err
		}
		if err := r.together(ctx, period, func(d *driver) []string { return d.mig }, func() error { return r.migClaims(ctx, period) }); err != nil {
			return err
		}
	}
	slots := func(d *driver) []string { return d.slots }
	if !slices.ContainsFunc(r.drivers, func(d *driver) bool { return d.slots == nil }) {
		progress("claims one at a time, on an empty node and with %d others", othersHeld)
		if err := r.together(ctx, 0, slots, func() error { return r.crowd(ctx) }); err != nil {
			return err
		}
	}
	// A separate run, because each call of NVML writes to a file.
	counted := func(d *driver) []string { return append([]string{"env", "GPU_SIM_CALLS=" + d.callsFile()}, d.whole...) }
	return r.together(ctx, 0, counted, func() error {
		return r.each(0, func(d *driver) error { return d.countNVML(ctx) })
	})
}

// together starts each driver with its command, calls use and stops them.
func (r *runner) together(ctx context.Context, number int, command func(*driver) []string, use func() error) error {
	defer func() {
		for _, d := range r.drivers {
			if d.agent != nil {
				d.agent.kill()
				d.agent = nil
			}
		}
	}()
	err := r.each(number, func(d *driver) (err error) {
		if err := d.clean(ctx); err != nil {
			return err
		}
		d.agent, d.published, err = d.startCommand(ctx, command(d))
		return err
	})
	if err != nil {
		return err
	}
	if err := use(); err != nil {
		return err
	}
	for _, d := range r.drivers {
		if err := d.agent.stop(); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// clean removes the slices and records of an earlier driver. NVIDIA's keeps a record of the boot
// and a CDI spec of all GPUs.
func (b *bench) clean(ctx context.Context) error {
	errs := []error{b.deleteSlices(ctx)}
	for _, folder := range []string{filepath.Join(b.dir, "plugins"), b.cdiDir} {
		entries, err := os.ReadDir(folder)
		errs = append(errs, err)
		for _, entry := range entries {
			errs = append(errs, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// perPeriod returns a period's part of a number of repetitions.
func (r *runner) perPeriod(repetitions int) int { return max(1, repetitions/r.starts) }

// claims measures claims of whole GPUs in a period.
func (r *runner) claims(ctx context.Context, period int) error {
	if err := r.each(period, func(d *driver) error { return d.beforeClaims(ctx) }); err != nil {
		return err
	}
	rounds, bursts := r.perPeriod(r.rounds), r.perPeriod(r.bursts)
	for i := range rounds {
		if err := r.each(period+i, func(d *driver) error { return d.round(ctx, i) }); err != nil {
			return err
		}
	}
	if err := r.each(period, func(d *driver) error { return d.afterClaims(rounds, &d.figures.Processor) }); err != nil {
		return err
	}
	for i := range bursts {
		if err := r.each(period+i, func(d *driver) error { return d.burst(ctx, d.agent, d.gpus[:gpusAtOnce], &d.figures.Burst) }); err != nil {
			return err
		}
	}
	err := r.each(period, func(d *driver) error {
		memory, err := anonymousMemory(d.pid())
		if err != nil {
			return err
		}
		d.figures.Memory = append(d.figures.Memory, memory)
		return nil
	})
	if err != nil || r.tracepoint == 0 {
		return err
	}
	return r.each(period, func(d *driver) error { return d.countSystemCalls(ctx, r.tracepoint) })
}

func (d *driver) pid() int { return d.agent.cmd.Process.Pid }

// beforeClaims measures a driver that has just started.
func (d *driver) beforeClaims(ctx context.Context) error {
	var err error
	if d.gpus, err = d.deviceNames(ctx); err != nil {
		return err
	}
	if len(d.gpus) < gpusAtOnce {
		return fmt.Errorf("%d GPUs are published, want at least %d", len(d.gpus), gpusAtOnce)
	}
	size, err := d.sliceSize(ctx)
	if err != nil {
		return err
	}
	memory, err := anonymousMemory(d.pid())
	if err != nil {
		return err
	}
	f := &d.figures
	f.Start, f.SliceSize, f.MemoryIdle = append(f.Start, d.published), append(f.SliceSize, size), append(f.MemoryIdle, memory)
	d.before, err = processorTime(d.pid())
	return err
}

// round prepares and unprepares one claim. The agent writes the status of a claim
// after a delay, so it does not write it here.
func (d *driver) round(ctx context.Context, i int) error {
	write, err := took(d.durableWrite)
	if err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	claim, err := d.claim(ctx, d.gpus[i%len(d.gpus)])
	if err != nil {
		return err
	}
	get, err := took(func() error {
		_, err := d.claims().Get(ctx, claim.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	prepare, unprepare, err := d.cycle(ctx, d.agent, claim, clock())
	f := &d.figures
	f.DurableWrite, f.Get = append(f.DurableWrite, write), append(f.Get, get)
	f.Prepare, f.Unprepare = append(f.Prepare, prepare), append(f.Unprepare, unprepare)
	return err
}

// afterClaims measures the processor time of a claim. It is a mean over the period, because the
// agent collects garbage and writes statuses between claims.
func (d *driver) afterClaims(claims int, samples *[]float64) error {
	after, err := processorTime(d.pid())
	*samples = append(*samples, (after-d.before)/float64(claims))
	return err
}

// countSystemCalls counts the system calls of a few claims.
func (d *driver) countSystemCalls(ctx context.Context, tracepoint uint64) error {
	counter, err := countSystemCalls(tracepoint, d.pid())
	if err != nil {
		return err
	}
	f := &d.figures
	return errors.Join(d.countClaims(ctx, counter.read, &f.PrepareCalls, &f.UnprepareCalls), counter.close())
}

// countClaims prepares and unprepares a claim of each of the first GPUs. It appends the counts
// of both.
func (d *driver) countClaims(ctx context.Context, read meter, prepares, unprepares *[]float64) error {
	for _, device := range d.gpus[:gpusAtOnce] {
		claim, err := d.claim(ctx, device)
		if err != nil {
			return err
		}
		prepare, unprepare, err := d.cycle(ctx, d.agent, claim, read)
		if err != nil {
			return err
		}
		*prepares, *unprepares = append(*prepares, prepare), append(*unprepares, unprepare)
	}
	return nil
}

// callsFile is the file to which the simulated NVML writes a byte per call.
func (b *bench) callsFile() string { return filepath.Join(b.dir, "nvml-calls") }

// countNVML counts the calls of NVML of a claim.
func (d *driver) countNVML(ctx context.Context) error {
	var prepares, unprepares []float64
	if err := d.countClaims(ctx, fileSize(d.callsFile()), &prepares, &unprepares); err != nil {
		return err
	}
	for i := range prepares {
		d.figures.NVMLCalls = append(d.figures.NVMLCalls, prepares[i]+unprepares[i])
	}
	return nil
}

// migClaims measures claims of MIG devices in a period. Another one of the same GPU keeps its
// MIG mode on.
func (r *runner) migClaims(ctx context.Context, period int) error {
	err := r.each(period, func(d *driver) error {
		size, err := d.sliceSize(ctx)
		if err != nil {
			return err
		}
		d.figures.MIGSliceSize = append(d.figures.MIGSliceSize, size)
		var other string
		if d.migDevice, other, err = d.smallMIGDevices(ctx); err != nil {
			return err
		}
		if d.keeper, err = d.claim(ctx, other); err != nil {
			return err
		}
		return d.agent.prepare(ctx, d.keeper)
	})
	if err != nil {
		return err
	}
	for i := range r.perPeriod(r.rounds) {
		err := r.each(period+i, func(d *driver) error {
			claim, err := d.claim(ctx, d.migDevice)
			if err != nil {
				return err
			}
			prepare, unprepare, err := d.cycle(ctx, d.agent, claim, clock())
			d.figures.MIGPrepare, d.figures.MIGUnprepare = append(d.figures.MIGPrepare, prepare), append(d.figures.MIGUnprepare, unprepare)
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.each(period, func(d *driver) error {
		memory, err := anonymousMemory(d.pid())
		d.figures.MemoryMIG = append(d.figures.MemoryMIG, memory)
		return errors.Join(err, d.drop(ctx, d.agent, d.keeper))
	})
}

// smallMIGDevices returns the names of two MIG devices of one GPU that fit at the same time:
// the first and the last of the smallest profile.
func (b *bench) smallMIGDevices(ctx context.Context) (first, last string, err error) {
	devices, err := b.devices(ctx)
	if err != nil {
		return "", "", err
	}
	var names []string
	var parent string
	for _, device := range devices {
		profile, gpu := text(device, "profile"), text(device, "parentUUID")
		if profile == "1g.10gb" && (parent == "" || parent == gpu) {
			parent = gpu
			names = append(names, device.Name)
		}
	}
	if len(names) < 2 {
		return "", "", fmt.Errorf("model %s has no two MIG devices 1g.10gb on a GPU", model)
	}
	return names[0], names[len(names)-1], nil
}

func text(device resourceapi.Device, attribute resourceapi.QualifiedName) string {
	return ptr.Deref(device.Attributes[attribute].StringValue, "")
}

// sliceSize returns the size of the node's slices as JSON, in kB.
func (b *bench) sliceSize(ctx context.Context) (float64, error) {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, b.ofNode())
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
	return float64(size) / 1e3, nil
}
