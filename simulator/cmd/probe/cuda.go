// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// cudaReport is the document that "probe cuda" prints: what a CUDA process in
// this container is given.
type cudaReport struct {
	Hostname string `json:"hostname"`
	// Env holds the variables whose names begin with CUDA_.
	Env map[string]string `json:"env"`
	// MPS says whether the process is a client of an MPS server. Without, as
	// with the real CUDA, nothing holds it to a share.
	MPS bool `json:"mps"`
	// Plain says why it is none.
	Plain string `json:"plain,omitempty"`
	// Waited is the reason for waiting.
	Waited string `json:"waited,omitempty"`
	// Client is what the server gave it.
	Client *granted `json:"client,omitempty"`
	// Devices of a process without MPS, if the simulated driver runs.
	Devices []grantedDevice `json:"devices,omitempty"`
	// Memory of the requested device as CUDA reports it to such a process before it
	// allocates.
	Memory *cudaMemory `json:"memory,omitempty"`
	// AllocatedBytes is the memory that it allocated on the requested device. With
	// several processes it is their sum.
	AllocatedBytes uint64 `json:"allocatedBytes"`
	// Refused is the error that ended the allocations of a greedy process.
	Refused *cudaError `json:"refused,omitempty"`
	// Processes are the reports of several processes.
	Processes []cudaReport `json:"processes,omitempty"`
	// Error is what went wrong, and with it the process.
	Error *cudaError `json:"error,omitempty"`
}

// cudaOptions are the arguments of "probe cuda".
type cudaOptions struct {
	memory size
	device int
	once   bool
	// withoutLimits drops those of the environment, as a careless or greedy
	// container may.
	withoutLimits bool
	// noMPS does not connect to an MPS daemon.
	noMPS bool
	// processes is how many processes do the same.
	processes int
	// greedy allocates until CUDA refuses.
	greedy bool
	// child is for the processes of a parent; see child.
	child bool
	// setEnv has variables as NAME=VALUE and dropEnv names, for the environment.
	setEnv, dropEnv []string
}

// The variables by which a process limits itself.
const (
	threadLimit = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	memoryLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// size is a number of bytes, with a suffix of Kubernetes' such as Gi.
type size uint64

func (s *size) String() string { return strconv.FormatUint(uint64(*s), 10) }

func (s *size) Set(text string) error {
	digits, shift := text, 0
	for suffix, n := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if cut, ok := strings.CutSuffix(text, suffix); ok {
			digits, shift = cut, n
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63-shift)
	*s = size(n << shift)
	return err
}

func parseCUDA(args []string, output io.Writer) (cudaOptions, error) {
	var o cudaOptions
	set := flag.NewFlagSet("probe cuda", flag.ContinueOnError)
	set.SetOutput(output)
	set.Var(&o.memory, "memory", "memory to allocate, such as 12Gi")
	set.IntVar(&o.device, "device", 0, "CUDA ordinal of the device to allocate of")
	set.BoolVar(&o.once, "once", false, "end after the report instead of holding the memory")
	set.BoolVar(&o.withoutLimits, "without-limits", false, "drop the limits that the environment sets")
	set.BoolVar(&o.noMPS, "no-mps", false, "ignore MPS")
	set.IntVar(&o.processes, "processes", 1, "number of processes that do the same, as children of this one")
	set.BoolVar(&o.greedy, "greedy", false, "allocate until CUDA refuses, in steps of --memory or 1Gi and then smaller ones")
	set.BoolVar(&o.child, "child", false, "print a line with a context, allocate after a line of the standard input, and hold the memory until its end")
	set.Func("set-env", "variable of the environment to set, as NAME=VALUE", func(v string) error {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return errors.New("want NAME=VALUE")
		}
		o.setEnv = append(o.setEnv, v)
		return nil
	})
	set.Func("drop-env", "NAME of a variable of the environment to drop", func(v string) error {
		o.dropEnv = append(o.dropEnv, v)
		return nil
	})
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if o.processes < 1 {
		return o, fmt.Errorf("%d processes: want at least 1", o.processes)
	}
	return o, nil
}

// environ returns the environment of the process, given the container's.
func (o cudaOptions) environ(container []string) []string {
	dropped := o.dropEnv
	if o.withoutLimits {
		dropped = append(slices.Clone(dropped), threadLimit, memoryLimit)
	}
	for _, v := range o.setEnv {
		name, _, _ := strings.Cut(v, "=")
		dropped = append(slices.Clone(dropped), name)
	}
	kept := slices.DeleteFunc(slices.Clone(container), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(dropped, name)
	})
	return append(kept, o.setEnv...)
}

// runCUDA is a CUDA process: it joins MPS if there is any, allocates, reports and
// holds the memory until ctx ends or it is ended. The error is what ended it, which
// is in a report as well.
func runCUDA(ctx context.Context, r root, environ []string, o cudaOptions, output io.Writer) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	environ = o.environ(environ)
	report := cudaReport{Hostname: hostname, Env: map[string]string{}}
	for name, value := range environment(environ) {
		if strings.HasPrefix(name, "CUDA_") {
			report.Env[name] = value
		}
	}
	if o.processes > 1 {
		return runProcesses(ctx, environ, o, &report, output)
	}
	client, err := begin(ctx, r, o, &report)
	if client != nil {
		defer client.close()
	}
	if o.child {
		var cancel context.CancelFunc
		ctx, cancel = awaitParent(ctx, output)
		defer cancel()
	}
	if err == nil && client != nil {
		err = client.take(&report, o)
	}
	if errors.Is(err, errStopped) {
		return nil
	}
	if full := (*cudaError)(nil); o.greedy && errors.As(err, &full) && full.Code == outOfMemory {
		// Not even a context fits: a greedy process has its result.
		report.Refused, client, err = full, nil, nil
	}
	if err != nil {
		return errors.Join(err, report.fail(output, err))
	}
	if err := report.print(output); err != nil || o.once {
		return err
	}
	if client == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case reply, ok := <-client.replies:
		err := client.failure(reply, ok)
		return errors.Join(err, report.fail(output, err))
	}
}

// begin makes the process a client of MPS, or else one of the simulated driver. It returns
// no client and no error for a process without MPS on a node where no driver runs: such a
// process can allocate nothing, which is an error only if its arguments ask for it.
func begin(ctx context.Context, r root, o cudaOptions, report *cudaReport) (*client, error) {
	directory := report.Env["CUDA_MPS_PIPE_DIRECTORY"]
	report.Plain = "a plain process on purpose"
	if !o.noMPS {
		c, err := connectMPS(ctx, r, directory)
		if err == nil {
			report.MPS, report.Plain = true, ""
			return c, c.start(ctx, report)
		}
		// CUDA goes on without MPS where it cannot connect.
		report.Plain = plain(directory, err)
	}
	c, err := dial(ctx, r, driverSocket)
	if err == nil {
		return c, c.initialise(report, o)
	}
	if o.noMPS || o.greedy {
		return nil, &cudaError{Name: "NO_DEVICE", Code: 100, Message: "no simulated driver runs on the node: " + err.Error()}
	}
	return nil, nil
}

func plain(directory string, err error) string {
	if directory == "" && errors.Is(err, fs.ErrNotExist) {
		return "a plain process: CUDA_MPS_PIPE_DIRECTORY is not set, and no daemon is at " + defaultPipeDirectory
	}
	return fmt.Sprintf("a plain process, as CUDA continues where it cannot connect to MPS: %v", err)
}

// fail prints the report with an error.
func (r *cudaReport) fail(output io.Writer, err error) error {
	var failure *cudaError
	if !errors.As(err, &failure) {
		failure = &cudaError{Name: "UNKNOWN", Code: 999, Message: err.Error()}
	}
	r.Error = failure
	return r.print(output)
}

func (r *cudaReport) print(output io.Writer) error {
	encoder := json.NewEncoder(output)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
