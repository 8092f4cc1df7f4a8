// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
	"k8s.io/apimachinery/pkg/util/wait"
)

// command is the built program; see TestMain.
var command string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Geteuid() != 0 {
			fmt.Fprintln(os.Stderr, "these tests start real Kubernetes nodes (kubelet, containerd, network namespaces): run them as root")
			return 1
		}
		if err := shareMounts(); err != nil {
			fmt.Fprintln(os.Stderr, "share mounts:", err)
			return 1
		}
		dir, err := os.MkdirTemp("", "clustertest-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		command = filepath.Join(dir, "cluster")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", command, "../cmd/cluster")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// shareMounts starts this program again where all mounts are shared, as on a machine with systemd.
// Other tests bring up clusters on the machine as it is.
func shareMounts() error {
	const shared = "CLUSTERTEST_SHARED_MOUNTS"
	if os.Getenv(shared) != "" {
		return nil
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	args := []string{"unshare", "--mount", "sh", "-c", `mount --make-rshared / && exec "$0" "$@"`}
	return syscall.Exec(unshare, append(args, os.Args...), append(os.Environ(), shared+"=1"))
}

// clusterName returns a name that no other run on this machine uses.
func clusterName(suffix string) string {
	return fmt.Sprintf("t%d%s", os.Getpid(), suffix)
}

func vethOf(t *testing.T, name string) string {
	t.Helper()
	l, err := cluster.NewLayout(name, "/")
	must(t, err)
	return l.Veth()
}

// run runs the command for a cluster and returns its standard output.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, append([]string{args[0], "--name", name}, args[1:]...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Logf("cluster %s --name %s\n%s", strings.Join(args, " "), name, stderr.String())
	if err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(t, name, args...)
	if err != nil {
		t.Fatalf("cluster %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// up brings a cluster up and makes sure that it goes with the test.
func up(t *testing.T, name string, flags ...string) {
	t.Helper()
	t.Cleanup(func() {
		// The test's context has ended by now.
		if out, err := exec.Command(command, "down", "--name", name).CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	mustRun(t, name, append([]string{"up"}, flags...)...)
}

func status(t *testing.T, name string) cluster.Status {
	t.Helper()
	out, _ := run(t, name, "status", "-o", "json")
	var s cluster.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("status: %v: %s", err, out)
	}
	return s
}

func kubectl(t *testing.T, name string, args ...string) string {
	t.Helper()
	l, err := cluster.NewLayout(name, "/")
	must(t, err)
	info, err := cluster.ReadInfo(l)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(info.BinDir, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+info.Kubeconfig, "KUBECACHEDIR="+filepath.Join(info.StateDir, "kubectl-cache"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

const askAPIServer = "nc -w 5 10.96.0.1 443 </dev/null && echo reached"

const podManifest = `
apiVersion: v1
kind: Pod
metadata: {name: probe}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: "localhost/gpu-dra/probe:test", imagePullPolicy: Never}
`

func runPod(t *testing.T, name string) {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	must(t, os.WriteFile(manifest, []byte(podManifest), 0o600))
	kubectl(t, name, "apply", "-f", manifest)
	kubectl(t, name, "wait", "--for=condition=Ready", "pod/probe", "--timeout=60s")
}

func kill(t *testing.T, name, component string) {
	t.Helper()
	for _, c := range status(t, name).Components {
		if c.Name == component {
			must(t, syscall.Kill(c.PID, syscall.SIGKILL))
		}
	}
	running := func(c cluster.ComponentStatus) bool { return c.Name == component && c.Running }
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(status(t, name).Components, running), nil
	})
	if err != nil {
		t.Fatalf("%s survived SIGKILL: %v", component, err)
	}
}

func TestAClusterComesUpAndGoesTwice(t *testing.T) {
	name := clusterName("a")
	before := lookAtMachine(t, name)
	t.Run("well", func(t *testing.T) {
		up(t, name)
		first := status(t, name)
		if !first.Healthy {
			t.Fatalf("not healthy: %s", first.Problem)
		}
		mustRun(t, name, "up")
		if diff := cmp.Diff(first, status(t, name)); diff != "" {
			t.Errorf("a second up changed a healthy cluster (-first +second):\n%s", diff)
		}

		runPod(t, name)
		var report struct{ Hostname string }
		if err := json.Unmarshal([]byte(kubectl(t, name, "logs", "probe")), &report); err != nil || report.Hostname != "probe" {
			t.Errorf("the probe printed %+v (%v), want one document from the pod", report, err)
		}
		if out := kubectl(t, name, "exec", "probe", "--", "sh", "-c", askAPIServer); !strings.Contains(out, "reached") {
			t.Errorf("the pod does not reach the API server's service: %q", out)
		}
		restartKubelet(t, name)
		assertMountsInItsFolder(t, before, name)
		kubectl(t, name, "delete", "pod", "probe")
		said := startGuest(t, name)
		mustRun(t, name, "down")
		awaitFile(t, said, "asked to end\n")
		assertNothingLeft(t, before, name)
		mustRun(t, name, "down")
		if s := status(t, name); s.Healthy {
			t.Error("a cluster that is down is called healthy")
		}
	})
	t.Run("with a runtime that ends", func(t *testing.T) {
		up(t, name)
		runPod(t, name)
		// With CLUSTER_CONTAINER_RUNTIME=cri-o it is not containerd.
		containerRuntime := status(t, name).Components[1].Name
		kill(t, name, containerRuntime)
		if _, err := run(t, name, "status"); err == nil || !strings.Contains(err.Error(), containerRuntime+" has ended") {
			t.Errorf("status: %v, want it to name %s", err, containerRuntime)
		}
		mustRun(t, name, "up")
		runPod(t, name)
		// Without its runtime the pod cannot be ended in the usual way.
		kill(t, name, containerRuntime)
		mustRun(t, name, "down")
		assertNothingLeft(t, before, name)
	})
}

// startGuest starts a guest and returns the file with its last message.
func startGuest(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "said")
	const script = `trap "echo asked to end >$0; exit" TERM; echo ready >$0; while :; do sleep 0.1; done`
	mustRun(t, name, "start", "guest", "--", "/bin/sh", "-c", script, file)
	awaitFile(t, file, "ready\n")
	if _, err := run(t, name, "start", "guest", "--", "/bin/true"); err == nil {
		t.Error("a second guest of the same name was started")
	}
	if _, err := run(t, name, "start", "kubelet", "--", "/bin/true"); err == nil {
		t.Error("a guest took a component's name")
	}
	return file
}

func restartKubelet(t *testing.T, name string) {
	t.Helper()
	const id = "jsonpath={.status.containerStatuses[0].containerID}"
	container, was := kubectl(t, name, "get", "pod", "probe", "-o", id), status(t, name)
	// It does not wait for the command of another cluster, which may be one that builds for minutes.
	other, err := os.Open(cluster.StateRoot)
	if err == nil {
		err = syscall.Flock(int(other.Fd()), syscall.LOCK_EX)
	}
	must(t, err)
	mustRun(t, name, "restart", "kubelet")
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	is := status(t, name)
	changed := 0
	for i, c := range was.Components {
		if c.PID != is.Components[i].PID {
			changed++
		}
	}
	ignorePIDs := cmpopts.IgnoreFields(cluster.ComponentStatus{}, "PID")
	if diff := cmp.Diff(was, is, ignorePIDs); diff != "" || changed != 1 {
		t.Errorf("%d daemons were restarted, want 1 (-before +after):\n%s", changed, diff)
	}
	if got := kubectl(t, name, "get", "pod", "probe", "-o", id); got != container {
		t.Errorf("the pod's container was %s and is %s", container, got)
	}
}

func TestANodeIsReplaced(t *testing.T) {
	name := clusterName("n")
	before := lookAtMachine(t, name)
	up(t, name, "--nodes", "2")
	second := name + ".2"
	at := "--overrides={\"spec\": {\"nodeName\": \"gpu-dra-" + second + "\"}}"
	for _, round := range []string{"first", "second"} {
		if s := status(t, second); !s.Healthy || len(s.Components) != 3 {
			t.Fatalf("%s: %s, components %+v, want three healthy ones", second, s.Problem, s.Components)
		}
		kubectl(t, name, "run", round, "--image=localhost/gpu-dra/probe:test", "--image-pull-policy=Never", at)
		kubectl(t, name, "wait", "--for=condition=Ready", "pod/"+round, "--timeout=60s")
		if out := kubectl(t, name, "exec", round, "--", "sh", "-c", askAPIServer); !strings.Contains(out, "reached") {
			t.Errorf("a pod of the second node does not reach the API server's service: %q", out)
		}
		assertMountsInItsFolder(t, before, name)
		if round == "second" {
			break
		}
		mustRun(t, second, "down")
		assertNothingLeft(t, before, second)
		kubectl(t, name, "delete", "node", "gpu-dra-"+second)
		if s := status(t, name); !s.Healthy {
			t.Errorf("without its second node: %s", s.Problem)
		}
		mustRun(t, second, "up")
	}
	// The pod of the second node is still there.
	mustRun(t, name, "down")
	assertNothingLeft(t, before, name)
}

func awaitFile(t *testing.T, file, want string) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return string(data) == want, err
	}); err != nil {
		t.Fatalf("%s never said %q: %v", file, want, err)
	}
}

func TestAnInterruptedUpKeepsOnlyItsLogs(t *testing.T) {
	name := clusterName("e")
	before := lookAtMachine(t, name)
	cmd := exec.CommandContext(t.Context(), command, "up", "--name", name)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "kubelet") {
			must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(said.String(), "did not come up") {
		t.Fatalf("up: %v: %s", err, said.String())
	}
	state := filepath.Join(cluster.StateRoot, name)
	var left []string
	if err := filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasPrefix(path, filepath.Join(state, "logs")) {
			left = append(left, path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string(nil), left); diff != "" {
		t.Errorf("files other than logs (-want +got):\n%s", diff)
	}
	mustRun(t, name, "down")
	assertNothingLeft(t, before, name)
}
