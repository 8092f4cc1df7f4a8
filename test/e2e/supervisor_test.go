// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// What breaks around the shares of a GPU, and what their containers notice.
func TestSharesOutliveWhatServesThem(t *testing.T) {
	supervisor := offerFractions(t)
	must(t, supervisor.RunOnHost(t.Context()))
	ns := namespaceFor(t, "supervised")
	sharer := func(name string) string {
		return share(name, "10Gi, compute: 20", "") + pod(name, name, "")
	}
	// The first is a client all the time, the second only while a test runs its client.
	apply(t, ns, strings.Replace(sharer("first"), "imagePullPolicy: IfNotPresent", "imagePullPolicy: IfNotPresent\n    args: [cuda, --memory, 8Gi]", 1))
	ready(t, ns, "first")
	before := onlyDaemon(t, supervisor)

	t.Run("the agent is killed", func(t *testing.T) {
		must(t, agent.Kill(t.Context()))
		must(t, agent.Start(t.Context()))
		if after := onlyDaemon(t, supervisor); after.PID != before.PID {
			t.Errorf("the daemon was process %d and is %d", before.PID, after.PID)
		}
	})
	t.Run("the supervisor is killed and adopts its daemons", func(t *testing.T) {
		must(t, supervisor.Kill(t.Context()))
		must(t, supervisor.RunOnHost(t.Context()))
		if after := onlyDaemon(t, supervisor); after.PID != before.PID || after.Restarts != 0 {
			t.Errorf("the daemon was process %d and is %d, with %d restarts", before.PID, after.PID, after.Restarts)
		}
		connected(t, ns, "first")
	})
	t.Run("a share waits while the supervisor is away", func(t *testing.T) {
		must(t, supervisor.Stop(t.Context()))
		apply(t, ns, sharer("second"))
		_, err := cluster.WaitEvent(t.Context(), ns, "second", "supervisor")
		must(t, err)
		must(t, supervisor.RunOnHost(t.Context()))
		ready(t, ns, "second")
	})
	t.Run("a daemon that dies is started again with its settings", func(t *testing.T) {
		old := onlyDaemon(t, supervisor)
		must(t, syscall.Kill(old.PID, syscall.SIGKILL))
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			daemons, err := supervisor.Daemons(ctx)
			d := daemons[old.Name]
			return d.State == "Ready" && d.PID != old.PID, fmt.Sprintf("the daemon is %+v", d), err
		}))
		client := ask(t, ns, "second", "--memory", "1Gi", "--without-limits")
		if client.Client.ActiveThreadPercentage != 20 || client.Error.Name != "" {
			t.Errorf("a new client is held to %v %%, want 20, the largest share; refused: %q", client.Client.ActiveThreadPercentage, client.Error.Name)
		}
		// The program of one has failed, and its pod has ended. That of the other would fail.
		for _, pod := range []string{"first", "second"} {
			warned(t, ns, pod, v1alpha1.ConditionShareInterrupted, "the programs of the share that ran then fail at their next CUDA call")
		}
		waitExplained(t, ns, "second", 3, "the MPS daemon of the share or its server ended (mps-interrupted")
	})
	remove(t, ns, "first", "second")
	nothingLeft(t)
	noDaemons(t, supervisor)
	t.Run("a program waits for another user's, and its pod says so", func(t *testing.T) {
		must(t, supervisor.RunOnHost(t.Context(), "--multi-user=false"))
		client := "imagePullPolicy: IfNotPresent\n    args: [cuda, --memory, 1Gi]"
		apply(t, ns, strings.Replace(sharer("third"), "imagePullPolicy: IfNotPresent", client, 1))
		ready(t, ns, "third")
		apply(t, ns, strings.Replace(sharer("fourth"), "imagePullPolicy: IfNotPresent", client+"\n    securityContext: {runAsUser: 2000}", 1))
		warned(t, ns, "fourth", v1alpha1.ConditionShareWaits, "A program waits for shares of another user")
		waitExplained(t, ns, "fourth", 2, "mps-other-user")
		remove(t, ns, "third", "fourth")
		nothingLeft(t)
		noDaemons(t, supervisor)
		must(t, supervisor.RunOnHost(t.Context()))
	})
}

// warned waits until a pod has an event of a reason and with a text.
func warned(t *testing.T, namespace, pod, reason, text string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "--namespace", namespace, "get", "events", "--field-selector", "type=Warning,involvedObject.kind=Pod,involvedObject.name="+pod+",reason="+reason,
			"--output", "jsonpath={.items[*].message}")
		return strings.Contains(out, text), fmt.Sprintf("the events %s of pod %s are %q", reason, pod, out), err
	}))
}

// onlyDaemon waits until the only daemon is ready, and returns it. A supervisor that adopts a
// daemon has no process of it yet.
func onlyDaemon(t *testing.T, supervisor *harness.Supervisor) (only harness.Daemon) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		daemons, err := supervisor.Daemons(ctx)
		if len(daemons) != 1 {
			return false, fmt.Sprintf("daemons %v, want one", daemons), err
		}
		for _, only = range daemons {
		}
		return only.State == "Ready", fmt.Sprintf("the daemon is %+v", only), err
	}))
	return only
}

// connected reports an error if the pod's own CUDA client has ended.
func connected(t *testing.T, namespace, name string) {
	t.Helper()
	phase, err := cluster.Kubectl(t.Context(), "get", "pod", "-n", namespace, name, "-o", "jsonpath={.status.phase}")
	must(t, err)
	if phase != "Running" {
		t.Errorf("pod %s is %s: its client was cut off", name, phase)
	}
}
