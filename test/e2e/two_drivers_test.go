// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// otherDriver is a driver with the same name as ours. otherSocket is the socket by
// which it registers with the kubelet.
const (
	otherDriver = "test/e2e/testdata/same-name.yaml"
	otherSocket = harness.DriverName + "-reg.sock"
)

// startOther starts the other driver, which ends with the test.
func startOther(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { must(t, cluster.StopSecondDriver(context.WithoutCancel(t.Context()))) })
	must(t, cluster.StartSecondDriver(t.Context(), otherDriver))
}

// otherDrivers waits until the agent's metric has the value.
func otherDrivers(t *testing.T, want int) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		metrics, err := agent.Metrics(ctx)
		line := fmt.Sprintf("\ngpu_dra_other_drivers %d\n", want)
		return strings.Contains(metrics, line), "the metrics do not have" + line, err
	}))
}

func TestAnotherDriverOfTheNameStartsWhileTheAgentServes(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "two-drivers")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	startOther(t)
	otherDrivers(t, 1)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		// It fails if it finds a problem.
		out, err := cluster.GPU(ctx, "doctor")
		return err != nil && strings.Contains(out, "another driver of the name "+harness.DriverName), "doctor says " + out, nil
	}))
	log, err := agent.Log(t.Context())
	must(t, err)
	if n := strings.Count(log, "Another driver is registered under this name"); n != 1 || !strings.Contains(log, otherSocket) {
		t.Errorf("the log has %d lines about the other driver, want 1 with its socket %s", n, otherSocket)
	}

	must(t, cluster.StopSecondDriver(t.Context()))
	otherDrivers(t, 0)
	published(t, "gpu-1b-00", true)
	remove(t, ns, "one-gpu")
	nothingLeft(t)
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	remove(t, ns, "one-gpu")
	nothingLeft(t)
}

func TestTheAgentLeavesANodeToAnotherDriverOfItsName(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "later-driver")
	must(t, agent.Stop(t.Context()))
	startOther(t)
	must(t, agent.Launch(t.Context()))
	_, pod := runningAgent(t)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		text, err := cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", harness.Namespace, "pods", pod+":8080", "proxy/readyz").DoRaw(ctx)
		said := string(text) + fmt.Sprint(err)
		return err != nil && strings.Contains(said, otherSocket), "/readyz says " + said, nil
	}))
	otherDrivers(t, 1)
	// The node is the other driver's: its slice, and its registration alone.
	devices, err := cluster.Devices(t.Context())
	must(t, err)
	if _, others := devices["gpu-0"]; !others || len(devices) != 1 {
		t.Errorf("the node's slices have %d devices, want only the other driver's: %v", len(devices), devices)
	}
	sockets, err := filepath.Glob(filepath.Join(cluster.PluginsRegistryDir, harness.DriverName+"*.sock"))
	must(t, err)
	if want := []string{filepath.Join(cluster.PluginsRegistryDir, otherSocket)}; !slices.Equal(sockets, want) {
		t.Errorf("registered with the kubelet: %q, want %q", sockets, want)
	}

	must(t, cluster.StopSecondDriver(t.Context()))
	must(t, agent.WaitReady(t.Context()))
	published(t, "gpu-1b-00", true)
	published(t, "gpu-0", false)
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	remove(t, ns, "one-gpu")
	nothingLeft(t)
}

// runningAgent waits until the agent's container runs, and returns its node and pod.
func runningAgent(t *testing.T) (node, name string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "get", "pods", "-n", harness.Namespace, "-l", "app.kubernetes.io/component=agent", "-o", "jsonpath={.items[*].status.phase}")
		return strings.TrimSpace(out) == "Running", "the agent's pod is " + out, err
	}))
	return agentOn(t)
}
