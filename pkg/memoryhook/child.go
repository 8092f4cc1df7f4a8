// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// inChild runs this program again, with other arguments, and returns its error. It
// returns when ctx ends, even if the child hangs in the kernel and cannot be killed. The
// child inherits the lock.
func inChild(ctx context.Context, lock *os.File, arguments ...string) error {
	command, err := ownCommand()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Not CommandContext, whose Wait waits for a child that cannot be killed.
	child := exec.Command(self) //nolint:noctx // see above
	child.Args = append(command, arguments...)
	var said bytes.Buffer
	child.Stderr = &said
	// A container's environment does not reach a hook. Nothing of the runtime's is
	// needed here.
	child.Env = []string{}
	child.ExtraFiles = []*os.File{lock}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the process that calls the driver: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = child.Process.Kill()
		return fmt.Errorf("%w: the driver has not answered: %w", gpu.ErrTimeout, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s (%w)", strings.TrimSpace(said.String()), err)
	}
	return nil
}

// ownCommand returns the command line of this process without the arguments of the
// program: the program alone, or a loader with its arguments and the program, since a
// program that a loader starts does not have these in os.Args.
func ownCommand() ([]string, error) {
	text, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return nil, fmt.Errorf("read the own command line: %w", err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	own := len(all) - (len(os.Args) - 1)
	if own < 1 {
		return nil, fmt.Errorf("read the own command line: %w: %q", gpu.ErrInvalid, all)
	}
	return all[:own], nil
}
