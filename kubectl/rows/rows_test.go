// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func cluster(w *fleettest.World) *Cluster { return New(w.Objects, v1alpha1.DriverName, nil) }

// shared returns a node of four GPUs: one is held, one is shared and has a taint.
func shared(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "whole", "")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	w.Taint("gpu-3b-00", "xid-79")
	return w
}

func TestRowsHaveTheUseThatAgentsReport(t *testing.T) {
	memory, half := uint64(1<<30), 0.5
	labels := agentv1.Labels{Namespace: "default", Claim: "half", Device: "gpu-3b-00", Pod: "half", Container: "main"}
	c := cluster(shared(t))
	for _, h := range c.Holders(c.Nodes(), "default", nil) {
		if h.Claim == "half" {
			labels.Container = h.Container
		}
	}
	used := Uses{"a": {Rows: []agentv1.Row{{Labels: labels, MemoryUsedBytes: &memory, SMUsed: &half}, {Labels: agentv1.Labels{Device: "gpu-86-00", Namespace: "other"}, MemoryUsedBytes: &memory}}}}
	text := func(u Use) string {
		if u.Memory == nil {
			return "-"
		}
		return Gibibytes(*u.Memory)
	}
	var got []string
	for _, g := range c.GPUs(c.Nodes(), used) {
		got = append(got, g.Name+" "+text(g.Use))
	}
	for _, h := range c.Holders(c.Nodes(), "", used) {
		got = append(got, h.Claim+" "+text(h.Use))
	}
	for _, u := range Usages(c.Nodes(), time.Now(), used) {
		got = append(got, u.Namespace+" "+text(u.Use))
	}
	want := []string{"gpu-18-00 -", "gpu-3b-00 1.0Gi", "gpu-86-00 1.0Gi", "gpu-af-00 -", "half 1.0Gi", "whole -", "default 1.0Gi"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatHoldersSay(t *testing.T) {
	limit := resource.MustParse("7Gi")
	for name, tc := range map[string]struct {
		holder                                Holder
		compute, heldBy, ofProcess, container string
	}{
		"alone":    {Holder{}, "-", "-", "", ""},
		"a share":  {Holder{Compute: 50, Share: &v1alpha1.ShareData{Strategy: "MPS", MemoryEnforcement: "hard", ComputeEnforcement: "soft", MemoryLimit: &limit}}, "50%", "mps, memory hard, compute soft", "7.0Gi", ""},
		"monitors": {Holder{Admin: true, Share: &v1alpha1.ShareData{ContainerMemoryLimit: &limit}}, "-", "monitors", "", "7.0Gi"},
	} {
		process, container := tc.holder.Limits()
		if diff := cmp.Diff([]string{tc.compute, tc.heldBy, tc.ofProcess, tc.container}, []string{tc.holder.ComputeText(), tc.holder.HeldBy(), process, container}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRowsAreOrderedByAColumn(t *testing.T) {
	table := Table{Heading: []string{"N", "COMPUTE"}, Wide: []string{"LIMIT OF A PROCESS"}, Rows: [][]string{
		{"10", "50%", "-"}, {"9", "1/7 slices", "2.0Gi"}, {"-", "7/7 slices", "1.0Gi"}, {"TOTAL", "", ""},
	}, Totals: 1, Health: []Health{{}, {State: HealthOK}, {}}}
	for column, want := range map[string]string{"n": "9 10 - TOTAL", "compute": "9 10 - TOTAL", "-n": "10 9 - TOTAL", "limit-of-a-process": "- 9 10 TOTAL", "": "10 9 - TOTAL"} {
		order, err := table.Order(strings.TrimPrefix(column, "-"), strings.HasPrefix(column, "-"))
		if err != nil {
			t.Fatal(err)
		}
		sorted := table.Reordered(order)
		var got []string
		for i, row := range sorted.Rows {
			got = append(got, row[0])
			if i < 3 && (sorted.Health[i].State == HealthOK) != (row[0] == "9") {
				t.Errorf("by %s: row %s has the health of another", column, row[0])
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %s: got %v, want %s", column, got, want)
		}
	}
	if _, err := table.Order("color", false); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("another column: %v", err)
	}
}

func TestAnExplanationHasTheWarningsOfItsPod(t *testing.T) {
	w := shared(t)
	now := time.Now()
	q := Question{Namespace: "default", Name: "whole", Nodes: 1, Limit: time.Minute}
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	event := corev1.Event{Reason: "FailedPrepareDynamicResources", Message: "no such file", LastTimestamp: at(22 * time.Minute)}
	pod := w.Pods[0]
	for name, tc := range map[string]struct {
		evidence Evidence
		started  bool
		fact     string
	}{
		"events":                 {Evidence{Warnings: []corev1.Event{event}}, false, "event FailedPrepareDynamicResources, 22m ago: no such file"},
		"before the pod's start": {Evidence{Warnings: []corev1.Event{event}}, true, "event FailedPrepareDynamicResources, 22m ago, ended 21m ago: no such file"},
		"no right":               {Evidence{NoEvents: true}, false, "you have no right to list events, which may have the reason"},
	} {
		pod.Status.ContainerStatuses = nil
		if tc.started {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(21 * time.Minute)}}}}
		} else {
			pod.Status.Phase = corev1.PodPending
		}
		tc.evidence.Now = now
		e, err := cluster(w).Explain(t.Context(), q, tc.evidence)
		if err != nil || !slices.Contains(e.Facts, tc.fact) {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
		if slices.ContainsFunc(e.Advice, func(a string) bool { return strings.Contains(a, "waiting") }) {
			t.Errorf("%s: an event of the past has the advice %q", name, e.Advice)
		}
	}
	q.Name = "claim/none"
	if _, err := cluster(w).Explain(t.Context(), q, Evidence{}); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
