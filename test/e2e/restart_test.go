// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var sorted = cmpopts.SortSlices(func(a, b string) bool { return a < b })

func TestRunningPodsOutliveTheAgent(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(context.Context) error
	}{
		{"when it is stopped and started", agent.Stop},
		// A container that starts later needs these files.
		{"when it is killed, its CDI files are removed, and it is started", func(ctx context.Context) error {
			if err := agent.Kill(ctx); err != nil {
				return err
			}
			for name := range cdiFiles(t) {
				if err := os.Remove(filepath.Join(cluster.CDIDir, name)); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nothingLeft(t)
			ns := namespaceFor(t, "agent-restart")
			apply(t, ns, "demo/whole-gpu/two-pods.yaml")
			ready(t, ns, "two-pods-a", "two-pods-b")
			before, files := report(t, ns), cdiFiles(t)

			must(t, tc.end(t.Context()))
			must(t, agent.Start(t.Context()))

			require.Same(t, "who holds what changed", before, report(t, ns))
			must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
				diff := cmp.Diff(files, cdiFiles(t))
				return diff == "", "the CDI files changed (-before +after):\n" + diff, nil
			}))
			apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
			ready(t, ns, "one-gpu")
			after := report(t, ns)
			for _, other := range []string{"two-pods-a/main", "two-pods-b/main"} {
				if after["one-gpu/main"].UUID == after[other].UUID {
					t.Errorf("the new pod was given the GPU of %s", other)
				}
			}
			remove(t, ns, "one-gpu", "two-pods-a", "two-pods-b")
			nothingLeft(t)
		})
	}
}

// After a reload of the driver, the device node that a GPU had may be another one's.
func TestNoContainerStartsWithoutItsGPU(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "gone")
	healsAtTheEnd(t)
	apply(t, ns, claim("again", "", "")+strings.Replace(pod("again", "again", ""), "restartPolicy: Never", "restartPolicy: Always", 1))
	ready(t, ns, "again")
	device := report(t, ns)["again/main"].Device
	sim(t, "fault", "lost", "--gpu", pciAddress(device))
	must(t, agent.Stop(t.Context()))
	must(t, agent.Launch(t.Context()))
	const node = "/dev/nvidia-unavailable"
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		specs := fmt.Sprint(cdiFiles(t))
		return strings.Contains(specs, node), "the CDI specs are " + specs, nil
	}))
	killPrograms(t, ns, "again")
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		events, err := cluster.Kubectl(ctx, "get", "events", "-n", ns, "-o", "jsonpath={.items[*].message}")
		return strings.Contains(events, node), "the events are " + events, err
	}))
	heal(t)
	waitUnhealthy(t, device, false)
	ready(t, ns, "again")
	remove(t, ns, "again")
	nothingLeft(t)
}

// killPrograms kills the programs in a pod.
func killPrograms(t *testing.T, namespace, name string) {
	t.Helper()
	of, err := cluster.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	programs, err := filepath.Glob("/proc/[0-9]*/comm")
	must(t, err)
	for _, path := range programs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		must(t, err)
		if program, _ := os.ReadFile(path); string(program) == "probe\n" && isOf(pid, of) {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

func TestAPodDeletedWhileTheAgentIsAwayIsCleanedUpWhenItReturns(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "away")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	must(t, agent.Kill(t.Context()))
	kubectl(t, "delete", "pod", "--wait=false", "-n", ns, "one-gpu")
	must(t, agent.Start(t.Context()))
	must(t, cluster.WaitGone(t.Context(), ns, "one-gpu"))
	nothingLeft(t)
}

// As pods do for which a new node is made: the first GPUs that are published are
// theirs at once, and the kubelet has to know the agent by then.
func TestPodsThatWaitForANodeArePreparedAtTheFirstTry(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "waiting")
	must(t, agent.Stop(t.Context()))
	kubectl(t, "delete", "resourceslices", "--all")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	_, err := cluster.Unschedulable(t.Context(), ns, "one-gpu")
	must(t, err)

	must(t, agent.Start(t.Context()))
	ready(t, ns, "one-gpu")
	events, err := cluster.Client.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedPrepareDynamicResources"})
	must(t, err)
	for _, event := range events.Items {
		t.Errorf("%s had to be tried again: %s", event.InvolvedObject.Name, event.Message)
	}
	remove(t, ns, "one-gpu")
	nothingLeft(t)
}

func TestRunningPodsOutliveTheKubelet(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "kubelet-restart")
	apply(t, ns, "demo/whole-gpu/shared-claim.yaml")
	ready(t, ns, "shared-claim")
	before := report(t, ns)

	must(t, cluster.Restart(t.Context(), "kubelet"))
	ready(t, ns, "shared-claim")

	require.Same(t, "who holds what changed", before, report(t, ns))
	pod, err := cluster.Client.CoreV1().Pods(ns).Get(t.Context(), "shared-claim", metav1.GetOptions{})
	must(t, err)
	for _, container := range pod.Status.ContainerStatuses {
		if container.RestartCount != 0 {
			t.Errorf("container %s was restarted", container.Name)
		}
	}
	// The kubelet deletes a node's slices when it starts; ours must come back.
	publishes(t, 8)
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	remove(t, ns, "one-gpu", "shared-claim")
	nothingLeft(t)
}

func TestGPUsArePublishedOnceTheDriverIsLoaded(t *testing.T) {
	must(t, agent.Stop(t.Context()))
	healsAtTheEnd(t)
	sim(t, "fault", "no-driver")
	must(t, agent.Launch(t.Context()))
	publishes(t, 0)
	// An update waits for every agent, those of nodes without a driver too.
	must(t, agent.WaitReady(t.Context()))
	heal(t)
	publishes(t, 8)
	must(t, agent.WaitReady(t.Context()))
}

// cdiFiles are the names and contents of the CDI files on the node.
func cdiFiles(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(cluster.CDIDir)
	must(t, err)
	files := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(cluster.CDIDir, entry.Name()))
		must(t, err)
		files[entry.Name()] = string(text)
	}
	return files
}
