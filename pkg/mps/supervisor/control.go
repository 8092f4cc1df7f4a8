// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// program is the daemon and its command line in one.
const program = "nvidia-cuda-mps-control"

// environment returns the environment of the program for a daemon's pipe directory.
func (o *Options) environment(f folders) []string {
	env := o.Driver.Environment()
	if len(env) == 0 {
		env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	env = append(env, o.Environment...)
	return append(env, "CUDA_MPS_PIPE_DIRECTORY="+f.pipe)
}

// mostOutput is the limit for the answer to a command in bytes. The list of the 48
// clients of a server has about 500.
const mostOutput = 64 << 10

// errTooMuch is the error for an answer that cannot be a daemon's.
var errTooMuch = fmt.Errorf("it says more than %d bytes: a container may have taken the place of its socket", mostOutput)

// answer collects the output of a program, and calls tooMuch if it exceeds [mostOutput].
type answer struct {
	text    bytes.Buffer
	tooMuch func()
}

func (a *answer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > mostOutput {
		a.tooMuch()
		return 0, errTooMuch
	}
	return a.text.Write(p)
}

// query sends commands to a daemon through its command line and returns the lines of the
// answer. It returns [gpu.ErrNotReady] if no daemon answers and [gpu.ErrTimeout] if it
// does not answer in time.
func (o *Options) query(ctx context.Context, f folders, commands ...string) ([]string, error) {
	return o.run(ctx, f, nil, strings.Join(commands, "\n")+"\n")
}

// errExit is the error if the program has ended with a status other than 0.
var errExit = errors.New("it failed")

// run runs the program with arguments or with commands as its standard input.
func (o *Options) run(ctx context.Context, f folders, args []string, stdin string) ([]string, error) {
	what := strings.Join(args, " ")
	if what == "" {
		what, _, _ = strings.Cut(stdin, "\n")
	}
	ended, end := context.WithCancelCause(ctx)
	defer end(nil)
	limited, cancel := context.WithTimeout(ended, o.CommandTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, o.Driver.Binaries(program)[0], args...)
	cmd.Env = o.environment(f)
	cmd.Stdin = strings.NewReader(stdin)
	output := &answer{tooMuch: func() { end(errTooMuch) }}
	cmd.Stdout, cmd.Stderr = output, output
	// The program may be a script, whose children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		// The number of a group that has ended may belong to another group.
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return err
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.WaitDelay = time.Second
	if err := o.start(cmd, f.commandMounts(o.MountNamespace)); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	said := strings.TrimSpace(output.text.String())
	switch {
	case errors.Is(context.Cause(ended), errTooMuch):
		return nil, fmt.Errorf("%q: %w: %w", what, gpu.ErrNotReady, errTooMuch)
	case limited.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%q: %w: no answer within %s", what, gpu.ErrTimeout, o.CommandTimeout)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%q: %w", what, ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%q: %w: %s (%w: %w)", what, gpu.ErrNotReady, said[:min(len(said), mostQuoted)], errExit, err)
	case said == "":
		return nil, nil
	}
	return strings.Split(said, "\n"), nil
}

// errNotRun is the error if the program cannot be run, as during an installation of the
// driver. The state of the daemon is unknown then.
var errNotRun = errors.New("nvidia-cuda-mps-control was not run")

// start starts a command of the program with the mounts in which it finds the program.
// It ignores the path in the command.
func (o *Options) start(cmd *exec.Cmd, m mounts) error {
	err := m.do(func() (err error) {
		if cmd.Path, err = o.Driver.Find(program, os.Stat); err != nil {
			return err
		}
		cmd.Args[0] = cmd.Path
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotRun, err)
	}
	return nil
}

// mostServers is more than a daemon has: one server, and servers of earlier users that
// have not ended yet.
const mostServers = 64

// servers returns the PIDs of a daemon's servers.
func (o *Options) servers(ctx context.Context, f folders) ([]int, error) {
	lines, err := o.query(ctx, f, "get_server_list")
	if err != nil {
		return nil, err
	}
	all := pids(lines)
	if len(all) > mostServers {
		return nil, fmt.Errorf("%w: it says that it has %d servers: a container may have taken the place of its socket", gpu.ErrNotReady, len(all))
	}
	return all, nil
}

// pids returns the PIDs in the lines and skips any other line.
func pids(lines []string) []int {
	var numbers []int
	for _, line := range lines {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			numbers = append(numbers, pid)
		}
	}
	return numbers
}

// serverStatuses returns the status of each server of a daemon.
func (o *Options) serverStatuses(ctx context.Context, f folders) ([]gpu.MPSServer, error) {
	numbers, err := o.servers(ctx, f)
	if err != nil {
		return nil, err
	}
	var servers []gpu.MPSServer
	for _, pid := range numbers {
		state, err := o.query(ctx, f, fmt.Sprintf("get_server_status %d", pid))
		if err != nil {
			return nil, err
		}
		clients, err := o.query(ctx, f, fmt.Sprintf("get_client_list %d", pid))
		if err != nil {
			return nil, err
		}
		servers = append(servers, gpu.MPSServer{PID: pid, State: strings.Join(state, " "), Clients: len(pids(clients))})
	}
	return servers, nil
}
