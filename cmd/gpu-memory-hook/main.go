// SPDX-License-Identifier: Apache-2.0

// Command gpu-memory-hook is an OCI hook (createRuntime) that limits the memory that a
// container has of a GPU. The agent installs it, and names it with its arguments in the
// CDI specs of claims. It needs neither the agent nor the API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/memoryhook"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	limits, device, gpu string
	bytes               uint64
	containers          int
	timeout             time.Duration
	// cgroup is set in the child process, which only calls the driver.
	cgroup string
	// check is set if the agent tries whether the host runs this program.
	check    bool
	hardware hardware
}

func parse(arguments []string) (o options, address gpu.PCIAddress, err error) {
	flags := flag.NewFlagSet("gpu-memory-hook", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.limits, "limits", "", "folder with the limits of containers")
	flags.StringVar(&o.device, "device", "", "name of the CDI device")
	flags.StringVar(&o.gpu, "gpu", "", "PCI address of the GPU")
	flags.Uint64Var(&o.bytes, "bytes", 0, "memory of each container")
	flags.IntVar(&o.containers, "containers", 1, "number of containers that may use the device at a time")
	flags.DurationVar(&o.timeout, "timeout", 25*time.Second, "time for the call into the driver")
	flags.StringVar(&o.cgroup, "cgroup", "", "set the limit of this cgroup, in a child process")
	flags.BoolVar(&o.check, "check", false, "only start and end, to see whether the host runs this program")
	o.hardware.addFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return o, address, fmt.Errorf("gpu-memory-hook: %w: %w", gpu.ErrInvalid, err)
	}
	if o.check {
		return o, address, nil
	}
	if flags.NArg() > 0 || o.bytes == 0 {
		return o, address, fmt.Errorf("gpu-memory-hook: %w: want --bytes and flags only, got %q", gpu.ErrInvalid, arguments)
	}
	address, err = gpu.ParsePCIAddress(o.gpu)
	return o, address, err
}

func run(ctx context.Context, arguments []string, state io.Reader) error {
	o, address, err := parse(arguments)
	if err != nil {
		return err
	}
	if o.check {
		return nil
	}
	if o.cgroup != "" {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		library, err := o.hardware.open()
		if err != nil {
			return err
		}
		return library.SetMemoryLimit(ctx, address, o.cgroup, o.bytes)
	}
	hook := memoryhook.Hook{
		Limits: limits.Folder(o.limits), Device: o.device,
		GPU: address, Bytes: o.bytes, Containers: o.containers, Timeout: o.timeout,
		CgroupOf: o.hardware.cgroupOf,
		Set: func(ctx context.Context, lock *os.File, folder string, bytes uint64) error {
			// The last of two flags of a name counts.
			return memoryhook.InChild(ctx, lock, append(arguments, "--cgroup", folder, "--bytes", strconv.FormatUint(bytes, 10))...)
		},
	}
	if err := hook.Run(ctx, state); err != nil {
		return fmt.Errorf("%s: cannot limit the memory of the container on GPU %s to %d MiB: %w", filepath.Base(os.Args[0]), address, o.bytes>>20, err)
	}
	return nil
}
