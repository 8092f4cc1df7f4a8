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

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// Run runs the hook with its command line. state is the state of the container, as the
// runtime writes it to the standard input. The error has the whole text for the runtime.
func Run(ctx context.Context, commandLine []string, state io.Reader) error {
	program := filepath.Base(commandLine[0])
	o, err := parse(commandLine[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if o.check {
		return inChild(ctx, nil, slices.Concat(o.call, []string{checkFlag}))
	}
	hook := o.hook
	hook.CgroupOf = cgroup.OfProcess
	hook.Set = func(ctx context.Context, lock *os.File, l containerlimits.Limit) error {
		if err := requestLimit(ctx, o.agent, l); err == nil || ctx.Err() != nil {
			return err
		}
		return inChild(ctx, lock, slices.Concat(o.call, callArguments(l, hook.Timeout)))
	}
	if err := hook.Run(ctx, state); err != nil {
		return fmt.Errorf("%s: cannot limit the memory of the container on GPU %s to %d MiB: %w", program, hook.GPU, hook.Bytes>>20, err)
	}
	return nil
}

// options are the values of the flags.
type options struct {
	// hook lacks its functions.
	hook Hook
	// agent is the path of the agent's socket.
	agent string
	// check is set if the agent tries whether the host runs this program.
	check bool
	// call is the command of the program that calls the driver.
	call []string
}

// checkFlag makes both programs only start and end.
const checkFlag = "--check"

// parse returns the options. The error wraps [gpu.ErrInvalid].
func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar((*string)(&o.hook.Limits), "limits", "", "folder with the limits of containers")
	flags.StringVar(&o.hook.Device, "device", "", "name of the CDI device")
	address := flags.String("gpu", "", "PCI address of the GPU")
	flags.Uint64Var(&o.hook.Bytes, "bytes", 0, "memory of each container")
	flags.IntVar(&o.hook.Containers, "containers", 1, "number of containers that may use the device at a time")
	flags.DurationVar(&o.hook.Timeout, "timeout", callPatience, "time for the call into the driver")
	flags.StringVar(&o.agent, "agent", "", "socket of the agent, which calls the driver faster")
	flags.BoolVar(&o.check, "check", false, "only start and end, to see whether the host runs both programs")
	if err := flags.Parse(arguments); err != nil {
		return o, fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	if o.call = flags.Args(); len(o.call) == 0 {
		return o, fmt.Errorf("%w: want the program that calls the driver after the flags, got %q", gpu.ErrInvalid, arguments)
	}
	if o.check {
		return o, nil
	}
	if o.hook.Bytes == 0 {
		return o, fmt.Errorf("%w: want --bytes, got %q", gpu.ErrInvalid, arguments)
	}
	o.hook.GPU, err = gpu.ParsePCIAddress(*address)
	return o, err
}
