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
	// Waited says what it had to wait for.
	Waited string `json:"waited,omitempty"`
	// Client is what the server gave it.
	Client *granted `json:"client,omitempty"`
	// AllocatedBytes is the memory that it allocated on the requested device.
	AllocatedBytes uint64 `json:"allocatedBytes"`
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
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return o, nil
}

// runCUDA is a CUDA process: it joins MPS if there is any, allocates, reports
// and holds what it has until ctx ends or it is ended. The error is what
// ended it, which is in a report as well.
func runCUDA(ctx context.Context, r root, environ []string, o cudaOptions, output io.Writer) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	report := cudaReport{Hostname: hostname, Env: map[string]string{}}
	for name, value := range environment(environ) {
		dropped := o.withoutLimits && (name == threadLimit || name == memoryLimit)
		if strings.HasPrefix(name, "CUDA_") && !dropped {
			report.Env[name] = value
		}
	}
	client, err := connect(ctx, r, report.Env["CUDA_MPS_PIPE_DIRECTORY"])
	switch {
	case err != nil:
		// CUDA goes on without MPS where it cannot connect.
		report.Plain = plain(report.Env["CUDA_MPS_PIPE_DIRECTORY"], err)
	default:
		defer client.close()
		report.MPS = true
		err = client.start(ctx, &report)
		if errors.Is(err, errStopped) {
			return nil
		}
		if err == nil && o.memory > 0 {
			err = client.allocate(&report, o)
		}
		if err != nil {
			return errors.Join(err, report.fail(output, err))
		}
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
		err := reply.failure(ok)
		return errors.Join(err, report.fail(output, err))
	}
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
