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

// program is both the daemon and the command line to it.
const program = "nvidia-cuda-mps-control"

// environment of the program for a daemon's pipe directory.
func (o *Options) environment(f folders) []string {
	env := o.Driver.Environment()
	if len(env) == 0 {
		env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	env = append(env, o.Environment...)
	return append(env, "CUDA_MPS_PIPE_DIRECTORY="+f.pipe)
}

// mostOutput is how many bytes a daemon may answer to a command. The list of the
// 48 clients of a server takes some 500.
const mostOutput = 64 << 10

// errTooMuch says that the answer to a command is not a daemon's.
var errTooMuch = fmt.Errorf("it says more than %d bytes: a container may have taken the place of its socket", mostOutput)

// answer collects what a program says, and calls tooMuch when that is more than
// [mostOutput].
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

// ask sends a daemon commands by its command line, and returns the lines that it
// answers. It returns [gpu.ErrNotReady] if no daemon answers and [gpu.ErrTimeout]
// if it does not in time.
func (o *Options) ask(ctx context.Context, f folders, commands ...string) ([]string, error) {
	ended, end := context.WithCancelCause(ctx)
	defer end(nil)
	limited, cancel := context.WithTimeout(ended, o.CommandTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, o.Driver.Binaries(program)[0])
	cmd.Env = o.environment(f)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	output := &answer{tooMuch: func() { end(errTooMuch) }}
	cmd.Stdout, cmd.Stderr = output, output
	// It may be a script: what the script runs is ended with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		// The number of a group that has ended may be another one's by now.
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
		return nil, fmt.Errorf("%q: %w: %w", commands[0], gpu.ErrNotReady, errTooMuch)
	case limited.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%q: %w: no answer within %s", commands[0], gpu.ErrTimeout, o.CommandTimeout)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%q: %w", commands[0], ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%q: %w: %s (%w)", commands[0], gpu.ErrNotReady, said[:min(len(said), mostQuoted)], err)
	case said == "":
		return nil, nil
	}
	return strings.Split(said, "\n"), nil
}

// errNotRun says that the program could not be run, as while a driver is being
// installed anew: how the daemon fares is not known.
var errNotRun = errors.New("nvidia-cuda-mps-control was not run")

// start starts a command of the program that sees these files. Where the program
// is depends on them, whatever the command says.
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

// mostServers is more than a daemon has: one, and those of earlier users that have
// not ended yet.
const mostServers = 64

// servers are the PIDs of a daemon's servers.
func (o *Options) servers(ctx context.Context, f folders) ([]int, error) {
	lines, err := o.ask(ctx, f, "get_server_list")
	if err != nil {
		return nil, err
	}
	all := pids(lines)
	if len(all) > mostServers {
		return nil, fmt.Errorf("%w: it says that it has %d servers: a container may have taken the place of its socket", gpu.ErrNotReady, len(all))
	}
	return all, nil
}

// pids reads a list of them and passes over anything else that is said.
func pids(lines []string) []int {
	var numbers []int
	for _, line := range lines {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			numbers = append(numbers, pid)
		}
	}
	return numbers
}

// look gives what a daemon says of its servers.
func (o *Options) look(ctx context.Context, f folders) ([]gpu.MPSServer, error) {
	numbers, err := o.servers(ctx, f)
	if err != nil {
		return nil, err
	}
	var servers []gpu.MPSServer
	for _, pid := range numbers {
		state, err := o.ask(ctx, f, fmt.Sprintf("get_server_status %d", pid))
		if err != nil {
			return nil, err
		}
		clients, err := o.ask(ctx, f, fmt.Sprintf("get_client_list %d", pid))
		if err != nil {
			return nil, err
		}
		servers = append(servers, gpu.MPSServer{PID: pid, State: strings.Join(state, " "), Clients: len(pids(clients))})
	}
	return servers, nil
}
