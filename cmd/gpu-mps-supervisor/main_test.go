// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// TestMain lets the test binary be the supervisor.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_SUPERVISOR") != "" {
		os.Exit(execute())
	}
	os.Exit(m.Run())
}

func process(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	return programtest.Process(t, "TEST_AS_SUPERVISOR=1", args...)
}

// parse reads a command line and an environment as the command does.
func parse(args []string, env map[string]string) (*options, error) {
	var o options
	if err := programtest.Parse(o.flags(), twins, args, env); err != nil {
		return nil, err
	}
	return &o, o.complete()
}

func TestAFlagWinsOverTheEnvironmentAndThatOverTheDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"default":              {want: "/run/gpu-mps-supervisor"},
		"environment":          {env: map[string]string{"GPU_MPS_RUN_DIR": "/env"}, want: "/env"},
		"flag and environment": {args: []string{"--run-dir=/flag"}, env: map[string]string{"GPU_MPS_RUN_DIR": "/env"}, want: "/flag"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(tc.args, tc.env)
			must(t, err)
			if o.runDir != tc.want {
				t.Errorf("run directory %q, want %q", o.runDir, tc.want)
			}
		})
	}
}

func TestInvalidFlagsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ args []string }{
		"a start that takes no time":          {[]string{"--start-timeout=0s"}},
		"a start longer than the agent waits": {[]string{"--start-timeout=26s"}},
		"probes without an interval":          {[]string{"--probe-interval=1ms"}},
		"too little shared memory":            {[]string{"--shm-size=15Mi"}},
		"shared memory off the Mi":            {[]string{"--shm-size=16.5Mi"}},
		"more memory than there can be":       {[]string{"--shm-size=100Ei"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tc.args, nil); !errors.Is(err, gpu.ErrInvalid) || !strings.HasPrefix(err.Error(), "--") {
				t.Errorf("error %v, want one that is ErrInvalid and names the flag", err)
			}
		})
	}
}

// reachable is a folder that every user can pass.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

func TestItServesUntilItReceivesSIGTERM(t *testing.T) {
	dir := reachable(t)
	socket := "--socket=" + filepath.Join(dir, "s")
	server, out := process(t, "--driver-root="+dir, "--run-dir="+filepath.Join(dir, "run"), "--log-dir="+filepath.Join(dir, "log"), socket)
	must(t, server.Start())
	deadline := time.After(time.Minute)
	for {
		status, said := process(t, "status", socket)
		if status.Run() == nil {
			if got := said.String(); !strings.Contains(got, "No MPS daemons") {
				t.Errorf("status says %q", got)
			}
			break
		}
		select {
		case <-deadline:
			t.Fatalf("it does not serve: %s; status: %s", out, said)
		case <-time.After(10 * time.Millisecond):
		}
	}
	must(t, server.Process.Signal(syscall.SIGTERM))
	if err := server.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %q (%v)", left, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "run" {
		t.Errorf("it leaves %v (%v), want its run directory only", left, err)
	}
	status, said := process(t, "status", socket)
	if err := status.Run(); err == nil || !strings.Contains(said.String(), "gpu-mps-supervisor does not answer on") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("status without a supervisor: %v, says %q; want one line that says who is away", err, said)
	}
}

func TestHelp(t *testing.T) {
	help := append(programtest.Output(t, newCommand(), "--help"), programtest.Output(t, newCommand(), "status", "--help")...)
	files.Golden(t, "help.txt", help)
}

var must = require.NoError
