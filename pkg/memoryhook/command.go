// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Hardware is the GPUs of a node.
type Hardware interface {
	// AddFlags adds the flags that say where the hardware is.
	AddFlags(flags *flag.FlagSet)
	// SetMemoryLimit calls the driver to limit the GPU's memory for the cgroup in a
	// folder. The limit is in bytes.
	SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error
}

// Run runs the program with its command line. state is the state of the container, as the
// runtime writes it to the standard input. The error has the whole text for the runtime.
func Run(ctx context.Context, commandLine []string, state io.Reader, hardware Hardware) error {
	program, arguments := filepath.Base(commandLine[0]), commandLine[1:]
	o, err := parse(arguments, hardware)
	if err != nil {
		return err
	}
	if o.check {
		return nil
	}
	if o.cgroup != "" {
		ctx, cancel := context.WithTimeout(ctx, o.hook.Timeout)
		defer cancel()
		return hardware.SetMemoryLimit(ctx, o.hook.GPU, o.cgroup, o.hook.Bytes)
	}
	hook := o.hook
	hook.CgroupOf = cgroup.OfProcess
	hook.Set = func(ctx context.Context, lock *os.File, folder string, bytes uint64) error {
		// The last of two flags of a name counts.
		return inChild(ctx, lock, slices.Concat(arguments, []string{"--cgroup", folder, "--bytes", strconv.FormatUint(bytes, 10)})...)
	}
	if err := hook.Run(ctx, state); err != nil {
		return fmt.Errorf("%s: cannot limit the memory of the container on GPU %s to %d MiB: %w", program, hook.GPU, hook.Bytes>>20, err)
	}
	return nil
}

// options are the values of the flags.
type options struct {
	// hook lacks the functions of the hardware.
	hook Hook
	// cgroup is set in the child process, which only calls the driver.
	cgroup string
	// check is set if the agent tries whether the host runs this program.
	check bool
}

// parse returns the options. The error wraps [gpu.ErrInvalid].
func parse(arguments []string, hardware Hardware) (o options, err error) {
	flags := flag.NewFlagSet("gpu-memory-hook", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar((*string)(&o.hook.Limits), "limits", "", "folder with the limits of containers")
	flags.StringVar(&o.hook.Device, "device", "", "name of the CDI device")
	address := flags.String("gpu", "", "PCI address of the GPU")
	flags.Uint64Var(&o.hook.Bytes, "bytes", 0, "memory of each container")
	flags.IntVar(&o.hook.Containers, "containers", 1, "number of containers that may use the device at a time")
	flags.DurationVar(&o.hook.Timeout, "timeout", 25*time.Second, "time for the call into the driver")
	flags.StringVar(&o.cgroup, "cgroup", "", "set the limit of this cgroup, in a child process")
	flags.BoolVar(&o.check, "check", false, "only start and end, to see whether the host runs this program")
	hardware.AddFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return o, fmt.Errorf("gpu-memory-hook: %w: %w", gpu.ErrInvalid, err)
	}
	if o.check {
		return o, nil
	}
	if flags.NArg() > 0 || o.hook.Bytes == 0 {
		return o, fmt.Errorf("gpu-memory-hook: %w: want --bytes and flags only, got %q", gpu.ErrInvalid, arguments)
	}
	o.hook.GPU, err = gpu.ParsePCIAddress(*address)
	return o, err
}
