// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var kueue = flag.String("kueue", "", "folder with Kueue's controller and chart, which `make judges` makes; without it the test of Kueue is skipped")

// The scheduler preempts no pod for a device. Kueue counts GPU memory instead, evicts jobs of
// lower priority, and lets a team use the quota of another until that needs it.
func TestKueueDividesGPUMemory(t *testing.T) {
	if *kueue == "" {
		t.Skip("it needs Kueue, which takes minutes to build: make judges")
	}
	nothingLeft(t)
	t.Run("the scheduler alone", testNoPreemption)
	installKueue(t)
	ns := namespaceFor(t, "language")
	applyQueue(t, ns, "demo/kueue/queue.yaml")
	apply(t, "", "demo/kueue/training.yaml")
	jobsAre(t, ns, map[string]string{"training": "3 pods ready"})
	apply(t, "", "demo/kueue/evaluation.yaml")
	jobsAre(t, ns, map[string]string{"training": "3 pods ready", "evaluation": "suspended"})
	waitCondition(t, ns, "evaluation", "insufficient unused quota for gpu.nvidia.com/memory in flavor gpus, 10Gi more needed")
	reserved(t, "30Gi")

	apply(t, "", "demo/kueue/urgent.yaml")
	jobsAre(t, ns, map[string]string{"training": "suspended", "evaluation": "2 pods ready", "incident": "2 pods ready"})
	waitCondition(t, ns, "training", "Preempted to accommodate a workload")
	reserved(t, "40Gi")

	t.Run("what Kueue cannot count waits", func(t *testing.T) { testNotCounted(t, ns) })

	kubectl(t, "delete", "job", "-n", ns, "evaluation", "incident")
	jobsAre(t, ns, map[string]string{"training": "3 pods ready"})
	reserved(t, "30Gi")
	t.Run("two teams", func(t *testing.T) { testLending(t, ns) })
	must(t, cluster.EmptyNamespace(t.Context(), ns))
	nothingLeft(t)
}

// applyQueue creates the queue of a namespace. Kueue removes the finalizers of the objects while it
// runs, so they are deleted before it is.
func applyQueue(t *testing.T, ns, manifest string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, cluster.EmptyNamespace(ctx, ns))
		_, err := cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", manifest)
		must(t, err)
	})
	apply(t, "", manifest)
}

// testNoPreemption lets a pod of high priority want a GPU of which each has a pod of no priority.
func testNoPreemption(t *testing.T) {
	ns := namespaceFor(t, "starving")
	apply(t, "", `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: starving}, value: 1000}`)
	t.Cleanup(func() {
		kubectl(t, "delete", "priorityclass", "starving")
	})
	var small []string
	for i := range 8 {
		name := fmt.Sprintf("small-%d", i)
		apply(t, ns, share(name, "41Gi", "")+pod(name, name, ""))
		small = append(small, name)
	}
	for _, name := range small {
		ready(t, ns, name)
	}
	apply(t, ns, claim("large", "", "")+strings.Replace(pod("large", "large", ""), "spec:", "spec:\n  priorityClassName: starving", 1))
	why, err := cluster.Unschedulable(t.Context(), ns, "large")
	must(t, err)
	if !strings.Contains(why, "preemption: ") {
		t.Errorf("the scheduler has not looked for pods to end: %s", why)
	}
	for _, name := range small {
		ready(t, ns, name)
	}
	kubectl(t, "delete", "pod", "-n", ns, small[3])
	ready(t, ns, "large")
	must(t, cluster.EmptyNamespace(t.Context(), ns))
}

// testLending lets the jobs of a team use the quota of another, which takes it back.
func testLending(t *testing.T, ns string) {
	vision := namespaceFor(t, "vision")
	applyQueue(t, vision, "demo/kueue/teams.yaml")
	apply(t, "", "demo/kueue/evaluation.yaml")
	jobsAre(t, ns, map[string]string{"training": "3 pods ready", "evaluation": "2 pods ready"})
	reserved(t, "50Gi")
	apply(t, "", "demo/kueue/labelling.yaml")
	jobsAre(t, vision, map[string]string{"labelling": "4 pods ready"})
	jobsAre(t, ns, map[string]string{"training": "3 pods ready", "evaluation": "suspended"})
	waitCondition(t, ns, "evaluation", "due to reclamation within the cohort")
	reserved(t, "30Gi")
	kubectl(t, "delete", "job", "-n", vision, "labelling")
	jobsAre(t, ns, map[string]string{"training": "3 pods ready", "evaluation": "2 pods ready"})
}

// testNotCounted creates jobs that request GPUs in ways that the recipe does not count.
// Kueue starts none of them.
func testNotCounted(t *testing.T, ns string) {
	first := strings.ReplaceAll(claim("first", "", ""), "exactly:", "firstAvailable:\n      - name: a")
	apply(t, ns, share("share", "1Gi", "")+template(first)+template(claim("all", "allocationMode: All", ""))+
		template(claim("whole", "", ""))+template(of("timeslice.nvidia.com", claim("slot", "", ""))))
	const byName, byTemplate, byResource = "resourceClaimName: share", "resourceClaimTemplateName: ", ""
	for name, c := range map[string]struct{ claim, resources, message string }{
		"by-name":    {byName, "claims: [{name: gpu}]", "does not support use of resource claims"},
		"first":      {byTemplate + "first", "claims: [{name: gpu}]", "FirstAvailable device selection is not supported"},
		"all":        {byTemplate + "all", "claims: [{name: gpu}]", "AllocationMode 'All' is not supported"},
		"whole":      {byTemplate + "whole", "claims: [{name: gpu}]", "current podset request (80928Mi) > maximum capacity (40Gi)"},
		"time-slice": {byTemplate + "slot", "claims: [{name: gpu}]", "DeviceClass timeslice.nvidia.com is not mapped"},
		"extended":   {byResource, "limits: {nvidia.com/gpu: 1}", "resource nvidia.com/gpu unavailable in ClusterQueue"},
		"by-class": {byResource, "limits: {deviceclass.resource.kubernetes.io/gpu.nvidia.com: 1}",
			"resource deviceclass.resource.kubernetes.io/gpu.nvidia.com unavailable in ClusterQueue"},
	} {
		t.Run(name, func(t *testing.T) {
			claims := ""
			if c.claim != "" {
				claims = "resourceClaims: [{name: gpu, " + c.claim + "}],"
			}
			apply(t, ns, fmt.Sprintf(`
{apiVersion: batch/v1, kind: Job, metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: gpus}}, spec: {template: {spec: {
  restartPolicy: Never, %s
  containers: [{name: main, image: "localhost/gpu-dra-driver/gpu-probe:demo", resources: {%s}}]}}}}
`, name, claims, c.resources))
			waitCondition(t, ns, name, c.message)
			job, err := cluster.Client.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			if !*job.Spec.Suspend || job.Status.Active != 0 {
				t.Errorf("Kueue has started it: %+v", job.Status)
			}
			kubectl(t, "delete", "job", "-n", ns, name)
		})
	}
	reserved(t, "40Gi")
}

// installKueue installs Kueue by its own chart, with the values of the recipe, until the
// test ends.
func installKueue(t *testing.T) {
	t.Helper()
	const image, tag = "localhost/kueue", "test"
	must(t, cluster.LoadProgram(t.Context(), filepath.Join(*kueue, "manager"), image+":"+tag))
	t.Cleanup(func() {
		_, err := cluster.Helm(context.WithoutCancel(t.Context()), "uninstall", "--ignore-not-found", "--wait", "--namespace", "kueue-system", "kueue")
		must(t, err)
	})
	const manager = "controllerManager.manager."
	_, err := cluster.Helm(t.Context(), "upgrade", "--install", "--create-namespace", "--namespace", "kueue-system", "--wait", "--timeout", "5m",
		"kueue", filepath.Join(*kueue, "chart"), "--values", "demo/kueue/kueue-values.yaml",
		"--set", manager+"image.repository="+image, "--set", manager+"image.tag="+tag, "--set", manager+"image.pullPolicy=Never")
	must(t, err)
}

// jobsAre waits until the namespace has these jobs. Each is suspended without pods, or
// has that many ready pods.
func jobsAre(t *testing.T, ns string, want map[string]string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		jobs, err := cluster.Client.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		got := map[string]string{}
		for _, job := range jobs.Items {
			switch ready := job.Status.Ready; {
			case job.Status.Active == 0 && job.Spec.Suspend != nil && *job.Spec.Suspend:
				got[job.Name] = "suspended"
			case ready != nil:
				got[job.Name] = fmt.Sprintf("%d pods ready", *ready)
			default:
				got[job.Name] = "starting"
			}
		}
		diff := cmp.Diff(want, got)
		return diff == "", "jobs (-want +got):\n" + diff, nil
	}))
}

// waitCondition waits until a condition that Kueue has set on a job contains the text.
func waitCondition(t *testing.T, ns, job, text string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "get", "workloads.kueue.x-k8s.io", "-n", ns, "-o", fmt.Sprintf(`jsonpath={.items[?(@.metadata.ownerReferences[0].name==%q)].status.conditions[*].message}`, job))
		return strings.Contains(out, text), fmt.Sprintf("of %s Kueue says %q, want %q", job, out, text), err
	}))
}

// reserved waits until jobs of the queue have that much GPU memory.
func reserved(t *testing.T, want string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		got, err := cluster.Kubectl(ctx, "get", "clusterqueue", "language", "-o", "jsonpath={.status.flavorsReservation[*].resources[*].total}")
		return got == want, fmt.Sprintf("%s is reserved, want %s", got, want), err
	}))
}
