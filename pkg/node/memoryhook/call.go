// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// Driver is the driver of the GPUs.
type Driver interface {
	// SetMemoryLimit limits the GPU's memory for the cgroup in a folder. The limit is in
	// bytes.
	SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error
}

// set calls the driver to limit the memory of a container. The path of its cgroup must be of
// the cgroup with its ID: another process can have another folder there.
func set(ctx context.Context, driver Driver, l containerlimits.Limit) error {
	address, err := gpu.ParsePCIAddress(l.GPU)
	if err != nil {
		return err
	}
	id, err := cgroup.Lookup(l.Cgroup)
	if err != nil {
		return err
	}
	if id != l.ID {
		return fmt.Errorf("cgroup %s: %w: it is another one now", l.Cgroup, gpu.ErrNotFound)
	}
	return driver.SetMemoryLimit(ctx, address, l.Cgroup, l.Bytes)
}

// callArguments returns the arguments of [RunCall] for a limit.
func callArguments(l containerlimits.Limit, timeout time.Duration) []string {
	return []string{
		"--gpu", l.GPU, "--cgroup", l.Cgroup, "--id", strconv.FormatUint(uint64(l.ID), 10), "--bytes", strconv.FormatUint(l.Bytes, 10),
		"--timeout", timeout.String(),
	}
}

// RunCall runs the program that calls the driver for one limit. open returns the driver that
// is installed below a folder.
func RunCall(ctx context.Context, arguments []string, open func(driverRoot string) Driver) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	driverRoot := flags.String("driver-root", "/", "folder of the driver's installation")
	var l containerlimits.Limit
	flags.StringVar(&l.GPU, "gpu", "", "PCI address of the GPU")
	flags.StringVar(&l.Cgroup, "cgroup", "", "folder of the cgroup")
	flags.Uint64Var((*uint64)(&l.ID), "id", 0, "number of the cgroup")
	flags.Uint64Var(&l.Bytes, "bytes", 0, "memory of the cgroup")
	timeout := flags.Duration("timeout", callPatience, "time for the call into the driver")
	check := flags.Bool("check", false, "only start and end")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	if *check {
		return nil
	}
	if flags.NArg() > 0 || l.Bytes == 0 {
		return fmt.Errorf("%w: want --bytes and flags only, got %q", gpu.ErrInvalid, arguments)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return set(ctx, open(*driverRoot), l)
}

// inChild runs a program and returns its error. It returns when ctx ends, even if the child
// hangs in the kernel and cannot be killed. The child inherits the lock; nil for none.
func inChild(ctx context.Context, lock *os.File, command []string) error {
	// Not CommandContext, whose Wait waits for a child that cannot be killed.
	child := exec.Command(command[0], command[1:]...) //nolint:noctx // see above
	var said bytes.Buffer
	child.Stderr = &said
	// A container's environment does not reach a hook. Nothing of the runtime's is
	// needed here.
	child.Env = []string{}
	if lock != nil {
		child.ExtraFiles = []*os.File{lock}
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the process that calls the driver: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s (%w)", strings.TrimSpace(said.String()), err)
	case <-ctx.Done():
		_ = child.Process.Kill()
		return notAnswered(ctx)
	}
}

// notAnswered returns the error of a call that has not ended with ctx.
func notAnswered(ctx context.Context) error {
	return fmt.Errorf("%w: the driver has not answered: %w", gpu.ErrTimeout, context.Cause(ctx))
}
