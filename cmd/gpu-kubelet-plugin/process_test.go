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

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet/kubelettest"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// TestMain lets the test binary be the agent, so that a signal can end a separate
// process.
func TestMain(m *testing.M) {
	switch os.Getenv("TEST_AS_AGENT") {
	case "1":
		os.Exit(execute())
	case "hangs":
		giveUp()
	}
	os.Exit(m.Run())
}

func agentProcess(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	return programtest.Process(t, "TEST_AS_AGENT=1", args...)
}

func TestAMistakeEndsTheProcessWithOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"unknown flag":     {"--nodename=x", "gpu-kubelet-plugin: unknown flag: --nodename\n"},
		"an argument":      {"nvml", `gpu-kubelet-plugin: unknown command "nvml" for "gpu-kubelet-plugin"`},
		"no such file":     {"--kubeconfig=/nowhere", "gpu-kubelet-plugin: connect to the cluster "},
		"outside of a pod": {"--driver-root=/nowhere", "gpu-kubelet-plugin: connect to the cluster (a pod's service account, or --kubeconfig): "},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := agentProcess(t, tc.args)
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit status 1", err)
			}
			if got := out.String(); !strings.HasPrefix(got, tc.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("said %q, want one line that begins %q", got, tc.want)
			}
		})
	}
}

func TestSIGTERMEndsTheProcessCleanlyEvenWithoutAnAPIServer(t *testing.T) {
	dir := files.ShortDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, errors.Join(os.Mkdir(in("plugins"), 0o755), os.Mkdir(in("registry"), 0o755), os.WriteFile(in("nvidia-cdi-hook"), nil, 0o755)))
	err := os.WriteFile(in("kubeconfig"), []byte(`{"kind":"Config","apiVersion":"v1","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600)
	must(t, err)
	cmd, out := agentProcess(t, "--driver-root="+in("driver"), "--kubeconfig="+in("kubeconfig"), "--node-name=node-1",
		"--kubelet-plugins-dir="+in("plugins"), "--kubelet-registry-dir="+in("registry"),
		"--cdi-dir="+in("cdi"), "--cdi-hook="+in("nvidia-cdi-hook"), "--http-listen=127.0.0.1:0")
	must(t, cmd.Start())
	kubelet, err := kubelettest.Register(t.Context(), in("registry"))
	must(t, err)
	defer kubelet.Close() //nolint:errcheck // nothing is written on it
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v, want exit status 0; it said:\n%s", err, out)
	}
	for _, folder := range []string{"plugins", "registry", "cdi"} {
		if left := files.List(t, in(folder)); len(left) != 0 {
			t.Errorf("left in %s: %q", folder, left)
		}
	}
}

func TestAProcessThatDoesNotEndSaysWhatHangs(t *testing.T) {
	cmd, out := agentProcess(t)
	cmd.Env = append(cmd.Env, "TEST_AS_AGENT=hangs")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	for _, want := range []string{"has not ended within 24s", "gpu-kubelet-plugin.giveUp"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("said %q, want %q in it", out, want)
		}
	}
}

func TestPrintingNeedsTheDriverOnlyAndLeavesNothing(t *testing.T) {
	root, tmp := programtest.Node(t, t.TempDir(), "t4"), t.TempDir()
	cmd, out := agentProcess(t, "--driver-root="+root, "--machine-root="+root, "--print-slices")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "HOME=", "KUBECONFIG=", "PATH=")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(out.String(), "{\n  \"kind\": \"List\",\n") || strings.Count(out.String(), `"type": {`) != 4 {
		t.Errorf("printed %.60q, want a List in JSON of four GPUs and nothing else", out)
	}
	if left := files.List(t, tmp); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

var must = require.NoError
