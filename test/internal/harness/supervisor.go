// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Supervisor is gpu-mps-supervisor on the cluster's node, on the hardware of an
// agent. The chart runs both. In the test cluster its MPS daemons end with its pod,
// because there is no cgroup v2 in which they could keep running.
type Supervisor struct {
	agent *Agent
}

// Supervisor of the agent's hardware.
func (a *Agent) Supervisor() *Supervisor { return &Supervisor{agent: a} }

// Socket is where the supervisor serves.
func (s *Supervisor) Socket() string { return filepath.Join(s.RunDir(), "supervisor.sock") }

// RunDir holds the folders of the daemons. It is short, as the paths of sockets
// have to be.
func (s *Supervisor) RunDir() string {
	return runDirs(s.agent.cluster.Name) + filepath.Base(s.agent.dir)
}

// runDirs is what the folders of a cluster's supervisors begin with.
func runDirs(cluster string) string { return "/run/mps/" + cluster + "-" }

// LogDir holds the logs of the daemons.
func (s *Supervisor) LogDir() string { return filepath.Join(s.agent.dir, "mps-log") }

// LogFile is where the output of a supervisor on the host goes.
func (s *Supervisor) LogFile() string { return filepath.Join(s.agent.dir, "supervisor.log") }

// RunOnHost replaces the chart's supervisor with a process of the host, and waits
// until it answers. It runs as a package of a distribution would run it. One that
// runs already is stopped first; its daemons go on. flags are further ones.
func (s *Supervisor) RunOnHost(ctx context.Context, flags ...string) error {
	s.agent.supervised = true
	c := s.agent.cluster
	if err := c.remove(ctx, supervisorDaemonSet, "supervisor"); err != nil {
		return err
	}
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if err := s.agent.CreateNode(ctx); err != nil {
		return err
	}
	err := c.tool(ctx, append([]string{
		"start", "supervisor", "--log", s.LogFile(), "--",
		c.Program("gpu-mps-supervisor"),
		"--driver-root=" + s.agent.SimDir(),
		"--run-dir=" + s.RunDir(),
		"--log-dir=" + s.LogDir(),
		"-v=4",
	}, flags...)...)
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	err = Until(ctx, func(ctx context.Context) (bool, string, error) {
		_, err := s.Daemons(ctx)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // it does not listen yet
		}
		return true, "", nil
	})
	if err != nil {
		return fmt.Errorf("supervisor not ready: %w\n%s", err, tail(s.LogFile()))
	}
	return nil
}

// Stop asks a supervisor on the host to end and waits for it. The daemons go on.
func (s *Supervisor) Stop(ctx context.Context) error {
	return s.agent.cluster.tool(ctx, "stop", "supervisor")
}

// Kill ends a supervisor on the host at once, as a crash does.
func (s *Supervisor) Kill(ctx context.Context) error {
	return s.agent.cluster.tool(ctx, "stop", "supervisor", "--now")
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// Daemon is one MPS daemon as gpu-mps-supervisor status prints it.
type Daemon struct {
	Name             string   `json:"name"`
	Devices          []string `json:"devices"`
	State            string   `json:"state"`
	PID              int      `json:"pid"`
	Restarts         int      `json:"restarts"`
	ThreadPercentage int      `json:"threadPercentage"`
}

// Daemons that run now, by name.
func (s *Supervisor) Daemons(ctx context.Context) (map[string]Daemon, error) {
	out, err := exec.CommandContext(ctx, s.agent.cluster.Program("gpu-mps-supervisor"), "status", "--socket", s.Socket(), "-o", "json").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("gpu-mps-supervisor status: %w", err)
	}
	var list []Daemon
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("gpu-mps-supervisor status: %w", err)
	}
	byName := map[string]Daemon{}
	for _, d := range list {
		byName[d.Name] = d
	}
	return byName, nil
}
