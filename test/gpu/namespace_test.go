// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The percentages of the multiprocessors that the namespaces of [checkNamespaces] have.
const (
	namespacePercentage = 25
	defaultPercentage   = 10
)

// checkNamespaces runs a control daemon of protocol 3 on an idle GPU. Clients find out how
// much of it they get in a namespace. It changes no setting of a GPU.
func checkNamespaces(t *testing.T, m *machine) {
	target, why := m.wholeTarget(t)
	if why == "" {
		why = m.noNamespaces(t)
	}
	if why != "" {
		t.Skipf("NOT RUN, and so nothing is known of MPS protocol 3 here: %s", why)
	}
	m.unchanged(t, "MPS", func() { checkNamespacesOn(t, m, target) })
}

// noNamespaces returns why the driver's MPS has no namespaces; "" if it has.
func (m *machine) noNamespaces(t *testing.T) string {
	t.Helper()
	help, err := m.newControl(t, "").call("-p", "3", "-h")
	if err != nil || !strings.Contains(help, "namespace") {
		return fmt.Sprintf("nvidia-cuda-mps-control -p 3 -h does not know namespaces, which drivers from release 615 have: %v: %s", err, strings.TrimSpace(help))
	}
	return ""
}

func checkNamespacesOn(t *testing.T, m *machine, target mpsTarget) {
	c := m.newControl(t, target.Devices[0])
	ended := c.start()
	c.must("server", "create", "shares", "--allowed-devices="+target.Devices[0])
	c.must("server", "set", "shares", fmt.Sprintf("--active-thread-percentage=%d", defaultPercentage))
	c.must("namespace", "create", "held", "--server=shares")
	c.must("namespace", "set", "held", "--server=shares", fmt.Sprintf("--active-thread-percentage=%d", namespacePercentage))
	if out, err := c.call("namespace", "create", "held", "--server=shares"); err == nil {
		t.Errorf("a second namespace of one name is created: %s", out)
	}
	if got, err := strconv.ParseFloat(c.must("namespace", "get", "held", "shares", "active-thread-percentage"), 64); err != nil || got != namespacePercentage {
		t.Errorf("the percentage reads as %v, %v, want %d", got, err, namespacePercentage)
	}

	held := c.must("namespace", "get", "held", "shares", "pipe-directory")
	for _, tc := range []struct {
		name, folder string
		environment  []string
	}{
		{"a client of the namespace", held, nil},
		{"a client of the namespace that asks for everything", held, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}},
		{"a client of the default namespace that asks for everything", c.must("namespace", "get", "default", "shares", "pipe-directory"), []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := m.multiprocessors(target)
			environment := append(tc.environment, fmt.Sprintf("%s=%d", multiprocessorsVariable, all))
			got := m.runClient(t, gpu.MPSDirs{Pipe: tc.folder, Shm: hostShm}, target, environment)
			t.Logf("%s with %d of %d multiprocessors", got.Name, got.Multiprocessors, all)
			// The driver rounds up, to whole clusters of multiprocessors on some GPUs.
			if got.Multiprocessors < 1 || got.Multiprocessors > all/2 {
				t.Errorf("it has %d of %d multiprocessors, want about %d %%", got.Multiprocessors, all, namespacePercentage)
			}
		})
	}

	c.must("namespace", "delete", "held", "--server=shares")
	if out, err := c.call("namespace", "get", "held", "shares", "pipe-directory"); err == nil {
		t.Errorf("the namespace is there after it was deleted: %s", out)
	}
	c.must("server", "delete", "shares", "--force")
	c.must("--quit")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the daemon runs on after --quit")
	}
}

// multiprocessors returns how many multiprocessors the GPU of a target has.
func (m *machine) multiprocessors(target mpsTarget) int {
	for _, g := range m.node.GPUs {
		if name, err := kind.Parse(target.Name); err == nil && name.Address == g.Address {
			return g.Multiprocessors
		}
	}
	return 0
}

// control is the command line of a control daemon with protocol 3 in separate folders.
type control struct {
	t           *testing.T
	program     string
	environment []string
	folder      string
}

// newControl returns the command line of a daemon that is not started yet. The daemon has
// the device of the UUID, or all devices for "".
func (m *machine) newControl(t *testing.T, uuid string) *control {
	t.Helper()
	program, err := m.driverRoot.Find("nvidia-cuda-mps-control", os.Stat)
	must(t, err)
	dir, err := os.MkdirTemp("", "mps3-") //nolint:usetesting // the path of a unix socket has 107 bytes at most
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			printLogs(t, dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := &control{t: t, program: program, folder: dir}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CUDA_") {
			c.environment = append(c.environment, v)
		}
	}
	c.environment = append(c.environment, m.driverRoot.Environment()...)
	c.environment = append(c.environment, "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(dir, "pipe"), "CUDA_MPS_LOG_DIRECTORY="+filepath.Join(dir, "log"))
	if uuid != "" {
		c.environment = append(c.environment, "CUDA_VISIBLE_DEVICES="+uuid)
	}
	for _, sub := range []string{"pipe", "log"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	return c
}

// start runs the daemon until the test ends, and returns once it answers. The channel is
// closed when the daemon has ended.
func (c *control) start() (ended <-chan struct{}) {
	c.t.Helper()
	ctx, kill := context.WithCancel(context.WithoutCancel(c.t.Context()))
	daemon := exec.CommandContext(ctx, c.program, "-f", "-p", "3")
	daemon.Env = c.environment
	log, err := os.Create(filepath.Join(c.folder, "log", "daemon.log"))
	must(c.t, err)
	daemon.Stdout, daemon.Stderr = log, log
	must(c.t, daemon.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = daemon.Wait()
	}()
	c.t.Cleanup(func() {
		kill()
		<-done
		_ = log.Close()
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for giveUp := time.After(patience); ; {
		out, err := c.call("server", "list")
		if err == nil {
			return done
		}
		select {
		case <-tick.C:
		case <-done:
			c.t.Fatalf("the daemon has ended: %s", out)
		case <-giveUp:
			c.t.Fatalf("the daemon does not answer: %v: %s", err, out)
		}
	}
}

// call runs the command line, and returns its output.
func (c *control) call(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, c.program, args...)
	command.Env = append([]string{"CUDA_MPS_PROTOCOL_VERSION=3"}, c.environment...)
	out, err := command.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (c *control) must(args ...string) string {
	c.t.Helper()
	out, err := c.call(args...)
	if err != nil {
		c.t.Fatalf("nvidia-cuda-mps-control %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestADriverWithoutNamespacesHasAReason(t *testing.T) {
	standInOnly(t)
	m := simulate(t, load(t, "dgx-h100"))
	if why := m.noNamespaces(t); !strings.Contains(why, "drivers from release 615") {
		t.Errorf("reason %q", why)
	}
	if why := simulate(t, load(t, "dgx-h100-r615")).noNamespaces(t); why != "" {
		t.Errorf("release 615: %s", why)
	}
}
