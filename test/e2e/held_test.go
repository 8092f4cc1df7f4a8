// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// The simulated driver counts the memory of a container's processes by their cgroup of
// version 2. The real driver does so too. On a machine with cgroups of version 1 at
// /sys/fs/cgroup, runc also creates the container's cgroup in the hierarchy of version 2,
// which the hook for simulated hardware accepts. So these tests do not prove that the
// kernel's controller dmem is enabled for containers, nor what another runtime does.
func TestSharesThatTheDriverHolds(t *testing.T) {
	runWithDriver(t, "gpu-1b-00-ts", "dgx-h100-r615", "--offer=share,timeslice")
	t.Run("a container that ignores MPS gets no more than its share", testGreedyWithoutMPS)
	t.Run("a container that raises its variables gets no more than its share", testGreedyClients)
	t.Run("a client of MPS is held if the driver charges the server for it", testChargedServer)
	t.Run("a plain share is held", testGreedyPlain)
	t.Run("a time slice with memory is held", testGreedyTimeSlice)
	t.Run("a share is divided among the containers that it is for", testContainersOfAShare)
	t.Run("a restarted container is held also without an agent", testRestartedContainer)
	t.Run("a container that cannot be limited does not start and its event says why", testHookFails)
}

// cudaPod is a pod with a container for each claim. The container runs a CUDA process with
// arguments of "probe cuda".
func cudaPod(name string, claims []string, args ...string) string {
	var uses, containers strings.Builder
	for i, claim := range claims {
		if !slices.Contains(claims[:i], claim) {
			fmt.Fprintf(&uses, "  - name: %[1]s\n    resourceClaimName: %[1]s\n", claim)
		}
		container := "main"
		if i > 0 {
			container = fmt.Sprintf("main-%d", i)
		}
		fmt.Fprintf(&containers, `  - name: %s
    image: localhost/gpu-dra-driver/gpu-probe:demo
    imagePullPolicy: IfNotPresent
    args: ["cuda", "%s"]
    resources:
      claims:
      - name: %s
`, container, strings.Join(args, `", "`), claim)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  resourceClaims:
%s  containers:
%s---
`, name, uses.String(), containers.String())
}

// wantWithin reports an error unless the processes of a container have allocated nearly
// all of their limit. They must not have more, contexts included.
func wantWithin(t *testing.T, got harness.CUDA, limit int64) {
	t.Helper()
	const contexts = 3 * gi // of a few processes
	if got.AllocatedBytes > limit || got.AllocatedBytes < limit-contexts {
		t.Errorf("the processes of a container with %d MiB have allocated %d MiB: %+v", limit>>20, got.AllocatedBytes>>20, got.Processes)
	}
	for _, p := range got.Processes {
		if p.Refused.Name != "OUT_OF_MEMORY" {
			t.Errorf("a process was refused with %+v, want OUT_OF_MEMORY", p.Refused)
		}
	}
}

func testGreedyWithoutMPS(t *testing.T) {
	ns := namespaceFor(t, "held-without-mps")
	apply(t, ns, share("a", "10Gi", "")+share("b", "20Gi", "")+
		cudaPod("greedy", []string{"a"}, harness.Greedy(3, "--no-mps")...)+
		cudaPod("other", []string{"b"}, harness.Greedy(1, "--no-mps")...))
	ready(t, ns, "greedy", "other")
	got := held(t, ns, "greedy")
	wantWithin(t, got, 10*gi)
	for _, p := range got.Processes {
		if p.MPS || p.Memory.TotalBytes != 10*gi {
			t.Errorf("a process sees a GPU of %d bytes, and MPS: %t", p.Memory.TotalBytes, p.MPS)
		}
	}
	wantWithin(t, held(t, ns, "other"), 20*gi)
}

func testGreedyClients(t *testing.T) {
	ns := namespaceFor(t, "held-clients")
	apply(t, ns, share("a", "10Gi", "")+share("b", "20Gi", "")+
		cudaPod("greedy", []string{"a"}, harness.Greedy(3, "--set-env", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=70G", "--set-env", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100")...)+
		pod("other", "b", ""))
	ready(t, ns, "greedy", "other")
	got := held(t, ns, "greedy")
	wantWithin(t, got, 10*gi)
	for _, p := range got.Processes {
		// 10Gi of the GPU's memory, in percent.
		if !p.MPS || p.Client.ActiveThreadPercentage != 12 {
			t.Errorf("a process is a client of MPS: %t, and has %v %% of the SMs, want 12", p.MPS, p.Client.ActiveThreadPercentage)
		}
	}
}

// The driver then counts nothing in the cgroup of the container. MPS limits each process.
func testChargedServer(t *testing.T) {
	ns := namespaceFor(t, "held-charged")
	healsAtTheEnd(t)
	sim(t, "fault", "mps", "charge-server")
	apply(t, ns, share("a", "10Gi", "")+cudaPod("greedy", []string{"a"}, harness.Greedy(1)...)+
		share("b", "20Gi", "")+cudaPod("other", []string{"b"}, harness.Greedy(1)...))
	ready(t, ns, "greedy", "other")
	for name, limit := range map[string]int64{"greedy": 10 * gi, "other": 20 * gi} {
		got := held(t, ns, name)
		if !got.MPS || got.AllocatedBytes > limit || got.AllocatedBytes < limit-gi {
			t.Errorf("%s has %d MiB with a limit of %d MiB, as a client of MPS: %t", name, got.AllocatedBytes>>20, limit>>20, got.MPS)
		}
	}
}

func testGreedyPlain(t *testing.T) {
	ns := namespaceFor(t, "held-plain")
	apply(t, ns, plainShare(t, `"strategy": "Plain", "require": "driver"`)+cudaPod("greedy", []string{"plain"}, harness.Greedy(2)...))
	ready(t, ns, "greedy")
	wantWithin(t, held(t, ns, "greedy"), 10*gi)
	// The agent has called the driver for the hook, and has the cgroups of the host.
	log, err := agent.Log(t.Context())
	must(t, err)
	if !strings.Contains(log, `"Set the memory limit of a container"`) || strings.Contains(log, `"Cannot set a memory limit for a hook`) {
		t.Error("the agent has set no limit, or not all")
	}
}

func testGreedyTimeSlice(t *testing.T) {
	ns := namespaceFor(t, "held-timeslice")
	slots := strings.ReplaceAll(share("slot", "10Gi", ""), "mps.nvidia.com", "timeslice.nvidia.com")
	apply(t, ns, slots+cudaPod("greedy", []string{"slot"}, harness.Greedy(2)...))
	ready(t, ns, "greedy")
	wantWithin(t, held(t, ns, "greedy"), 10*gi)
}

func testContainersOfAShare(t *testing.T) {
	ns := namespaceFor(t, "held-containers")
	apply(t, ns, share("two", "10Gi", config("ShareConfig", `"containers": 2`))+
		cudaPod("both", []string{"two", "two"}, harness.Greedy(1, "--no-mps")...))
	ready(t, ns, "both")
	for _, container := range []string{"main", "main-1"} {
		got, err := cluster.CUDA(t.Context(), ns, "both", container)
		must(t, err)
		wantWithin(t, got, 5*gi)
	}
	apply(t, ns, cudaPod("third", []string{"two"}, harness.Greedy(1, "--no-mps")...))
	event, err := cluster.WaitEvent(t.Context(), ns, "third", "its memory is for 2 containers at a time")
	must(t, err)
	t.Logf("the third container: %s", event)
	remove(t, ns, "both")
	ready(t, ns, "third")
}

func testRestartedContainer(t *testing.T) {
	ns := namespaceFor(t, "held-restart")
	apply(t, ns, share("a", "10Gi", "")+cudaPod("greedy", []string{"a"}, harness.Greedy(1, "--no-mps", "--once")...))
	restarted := func(least int32) {
		t.Helper()
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			pod, err := cluster.Client.CoreV1().Pods(ns).Get(ctx, "greedy", metav1.GetOptions{})
			if err != nil || len(pod.Status.ContainerStatuses) == 0 {
				return false, "no container", err
			}
			status := pod.Status.ContainerStatuses[0]
			return status.RestartCount >= least, fmt.Sprintf("%+v", status), nil
		}))
		wantWithin(t, held(t, ns, "greedy"), 10*gi)
	}
	restarted(1)
	must(t, agent.Stop(t.Context()))
	restarted(2)
	must(t, agent.Start(t.Context()))
}

func testHookFails(t *testing.T) {
	ns := namespaceFor(t, "held-fails")
	healsAtTheEnd(t)
	sim(t, "fault", "call", "--method", "DeviceSetMemoryLimits_v1", "--return", "ERROR_NOT_FOUND")
	apply(t, ns, share("a", "10Gi", "")+cudaPod("greedy", []string{"a"}, harness.Greedy(1)...))
	event, err := cluster.WaitEvent(t.Context(), ns, "greedy", "the kernel's controller dmem is not enabled")
	must(t, err)
	t.Logf("the container: %s", event)
	heal(t)
	ready(t, ns, "greedy")
	wantWithin(t, held(t, ns, "greedy"), 10*gi)
}

// allocated waits until the CUDA processes of a pod's containers have allocated their memory. A
// pod is Ready as soon as its containers have started.
func allocated(t *testing.T, namespace, pod string, containers ...string) {
	t.Helper()
	for _, container := range containers {
		_, err := cluster.CUDA(t.Context(), namespace, pod, container)
		must(t, err)
	}
}

// claimMetric returns the value of a metric of a claim in the driver's metrics. pod and
// container are empty for a metric of the claim as a whole.
func claimMetric(t *testing.T, metrics, name, namespace, claim, pod, container string) float64 {
	t.Helper()
	labels := fmt.Sprintf(`(?m)^gpu_dra_claim_%s\{claim=%q,container=%q,device="[^"]+",enforcement="[^"]+",namespace=%q,pod=%q,uuid="[^"]+"\} (\S+)$`, name, claim, container, namespace, pod)
	found := regexp.MustCompile(labels).FindAllStringSubmatch(metrics, -1)
	if len(found) != 1 {
		t.Fatalf("%d metrics %s in:\n%s", len(found), labels, metrics)
	}
	value, err := strconv.ParseFloat(found[0][1], 64)
	must(t, err)
	return value
}

// What a hostile container gets at the levels below "driver".
func TestWhatAGreedyContainerGetsOnAnOlderDriver(t *testing.T) {
	runWithDriver(t, "gpu-1b-00", "dgx-h100")
	ns := namespaceFor(t, "greedy-older")
	apply(t, ns, share("a", "10Gi", "")+share("b", "20Gi", "")+
		cudaPod("without-limits", []string{"a"}, harness.Greedy(1, "--without-limits")...)+
		pod("other", "b", ""))
	ready(t, ns, "without-limits", "other")
	// What the largest share of the GPU has, without a context on its 25 % of the SMs.
	context := int64(h100.ContextBytes(h100.MPSMultiprocessors(25)))
	// It allocates whole Mi.
	if got, want := held(t, ns, "without-limits").AllocatedBytes, (20*gi-context)>>20<<20; got != want {
		t.Errorf("without its variables it has %d bytes, want %d", got, want)
	} else {
		metrics, err := agent.Metrics(t.Context())
		must(t, err)
		used := claimMetric(t, metrics, "memory_used_bytes", ns, "a", "without-limits", "main")
		promised := claimMetric(t, metrics, "memory_promised_bytes", ns, "a", "", "")
		if used != float64(got+context) || promised != 10*gi {
			t.Errorf("in the metrics the client of MPS uses %v of %v bytes, want %d and a context of 10 GiB", used, promised, got)
		}
	}
	remove(t, ns, "without-limits")
	apply(t, ns, cudaPod("without-mps", []string{"a"}, harness.Greedy(1, "--no-mps")...))
	ready(t, ns, "without-mps")
	if got := held(t, ns, "without-mps").AllocatedBytes; got < 70*gi {
		t.Errorf("without MPS it has %d bytes, want nearly all of the GPU", got)
	}
	apply(t, ns, share("required", "10Gi", config("ShareConfig", `"require": "driver"`))+pod("required", "required", ""))
	_, err := cluster.WaitEvent(t.Context(), ns, "required", "the memory of the share is held at the level cooperative on this node, and the ShareConfig requires driver: the driver is older than release 615")
	must(t, err)
}
