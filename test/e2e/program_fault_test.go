// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// runningCUDA is a pod whose program is a CUDA process.
func runningCUDA(name string) string {
	return strings.Replace(pod(name, name, ""), "imagePullPolicy: IfNotPresent", "imagePullPolicy: IfNotPresent\n    args: [cuda, --memory, 1Gi]", 1)
}

// isOf reports whether a process is of a pod, by its cgroup.
func isOf(pid int, pod *corev1.Pod) bool {
	group, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // the process may have ended
	return strings.Contains(strings.ReplaceAll(string(group), "_", "-"), string(pod.UID))
}

// processOf returns the process of a pod on the simulated GPUs.
func processOf(t *testing.T, namespace, name string) (pid int) {
	t.Helper()
	of, err := cluster.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		for _, g := range simulated(t).GPUs {
			for _, p := range g.Processes {
				if isOf(p.PID, of) {
					pid = p.PID
				}
			}
		}
		return pid > 0, "no process of pod " + name + " is on a GPU", nil
	}))
	return pid
}

// waitFaultEvents waits until the pods have the events about faults, as "pod reason".
func waitFaultEvents(t *testing.T, namespace string, want ...string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "--namespace", namespace, "get", "events", "--field-selector", "involvedObject.kind=Pod", "--sort-by", "involvedObject.name",
			"--output", `jsonpath={range .items[*]}{.involvedObject.name} {.reason} {.message}{"\n"}{end}`)
		var got []string
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); strings.HasSuffix(fields[1], "Fault") {
				got = append(got, fields[0]+" "+fields[1])
			}
		}
		return strings.Join(got, ", ") == strings.Join(want, ", "), fmt.Sprintf("want the events %q, have:\n%s", want, out), err
	}))
}

func TestAFaultOfAProgramHasEventsOnItsPodAndItsNeighbors(t *testing.T) {
	runOn(t, "gpu-1b-00", "dgx-h100", "--reconcile-interval=2s")
	ns, other := namespaceFor(t, "fault-own"), namespaceFor(t, "fault-other")
	t.Cleanup(func() {
		// The next agent starts on a node without claims.
		ctx := context.WithoutCancel(t.Context())
		must(t, cluster.EmptyNamespace(ctx, ns))
		must(t, cluster.EmptyNamespace(ctx, other))
	})
	apply(t, ns, share("bad", "10Gi", "")+runningCUDA("bad"))
	ready(t, ns, "bad")
	apply(t, other, share("good", "10Gi", "")+runningCUDA("good")+"---"+claim("alone", "", "")+runningCUDA("alone"))
	ready(t, other, "good", "alone")
	device := report(t, ns)["bad/main"].Device
	if with := report(t, other)["good/main"].Device; with != device {
		t.Fatalf("the shares are on %s and %s", device, with)
	}
	pid := processOf(t, ns, "bad")
	sim(t, "fault", "xid", "--xid", "31", "--pid", fmt.Sprint(pid))

	waitFaultEvents(t, ns, "bad ProgramFault")
	waitFaultEvents(t, other, "good SharedFault")
	out := waitExplained(t, ns, "bad", 4, "pod "+ns+"/bad: Failed", "XID 31 at ", "on "+device+" of node "+cluster.NodeName+": the program accessed an address of the GPU's memory that is not mapped; the GPU is well")
	if !strings.Contains(out, "find the access (compute-sanitizer)") {
		t.Errorf("no remedy:\n%s", out)
	}
	out = waitExplained(t, other, "good", 4, "pod "+other+"/good: Failed", "A fault of another program on "+device+" of node "+cluster.NodeName+" (XID 31 at ", "ended the programs of all its MPS shares")
	if strings.Contains(out, ns) || strings.Contains(out, "bad") || !strings.Contains(out, "for faults that stay apart, use a MIG device or a GPU of your own") {
		t.Errorf("the neighbor's explanation names the other tenant, or has no remedy:\n%s", out)
	}
	log, err := agent.Log(t.Context())
	must(t, err)
	for _, name := range []string{"Pod " + ns + "/bad", "Pod " + other + "/good", fmt.Sprintf("pid=%d", pid)} {
		if !strings.Contains(log, name) {
			t.Errorf("the agent's log does not have %q", name)
		}
	}
	metrics, err := agent.Metrics(t.Context())
	must(t, err)
	for namespace, cause := range map[string]string{ns: "own", other: "other"} {
		if series := fmt.Sprintf(`gpu_dra_program_faults_total{cause="%s",namespace="%s",xid="31"} 1`, cause, namespace); !strings.Contains(metrics, series) {
			t.Errorf("no metric %s", series)
		}
	}
	if found, cause, err := unhealthy(t.Context(), device); found || err != nil {
		t.Errorf("%s has the taint of %s, %v", device, cause, err)
	}
	ready(t, other, "alone")
}
