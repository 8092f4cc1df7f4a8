// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
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
	used := Uses{"a": {Rows: []agentv1.Row{{Labels: labels, MemoryUsedBytes: &memory, SMUsed: &half}, {Labels: agentv1.Labels{Device: "gpu-86-00", Namespace: "other"}, MemoryUsedBytes: &memory}}},
		"not-selected": {Rows: []agentv1.Row{{Labels: labels, MemoryUsedBytes: &memory, SMUsed: &half}}}}
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
	require.Same(t, "uses", want, got)
}

func TestWhatHoldersSay(t *testing.T) {
	limit := resource.MustParse("7Gi")
	for name, tc := range map[string]struct {
		holder                                Holder
		compute, heldBy, ofProcess, container string
	}{
		"alone":    {Holder{}, "-", "-", "-", "-"},
		"a share":  {Holder{Compute: 50, Share: &v1alpha1.ShareData{Strategy: "MPS", MemoryEnforcement: "hard", ComputeEnforcement: "soft", MemoryLimit: &limit}}, "50%", "mps, memory hard, compute soft", "7.0Gi", "-"},
		"monitors": {Holder{Admin: true, Share: &v1alpha1.ShareData{ContainerMemoryLimit: &limit}}, "-", "monitors", "-", "7.0Gi"},
	} {
		cells := HolderTable([]Holder{tc.holder}, nil, time.Now()).Rows[0]
		require.Same(t, name, []string{tc.compute, tc.heldBy, tc.ofProcess, tc.container}, slices.Concat(cells[7:8], cells[9:]))
	}
}

func TestRowsAreOrderedByAColumn(t *testing.T) {
	table := Table{Heading: []string{"N", "COMPUTE"}, Wide: []string{"LIMIT OF A PROCESS"}, Rows: [][]string{
		{"10", "50%", "-"}, {"9", "1/7 slices", "2.0Gi"}, {"-", "7/7 slices", "1.0Gi"}, {"TOTAL", "", ""},
	}, Totals: 1, Health: []Health{{}, {State: HealthOK}, {}}}
	for column, want := range map[string]string{"n": "9 10 - TOTAL", "compute": "9 10 - TOTAL", "-n": "10 9 - TOTAL", "limit-of-a-process": "- 9 10 TOTAL", "": "10 9 - TOTAL"} {
		order, err := table.Order(strings.TrimPrefix(column, "-"), strings.HasPrefix(column, "-"))
		require.NoError(t, err)
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
	cells := []string{"10.0.0.2", "at most 10", "9 GPUs", "≥2", "10.0.0.1"}
	slices.SortFunc(cells, compareCells)
	require.Same(t, "cells", []string{"≥2", "9 GPUs", "10.0.0.1", "10.0.0.2", "at most 10"}, cells)
	_, err := table.Order("color", false)
	require.Error(t, "another column", err, gpu.ErrInvalid)
}

func TestAnExplanationHasTheWarningsOfItsPod(t *testing.T) {
	w := shared(t)
	now := time.Now()
	q := Question{Namespace: "default", Name: "whole", Nodes: 1, Limit: time.Minute}
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	event := corev1.Event{Reason: "FailedMount", Message: "no such file", LastTimestamp: at(22 * time.Minute)}
	refusal := event
	refusal.Reason, refusal.Message = failedPrepare, gpu.ErrInUse.Error()
	ready := func(ago time.Duration) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: at(ago)}}}
	}
	started := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(21 * time.Minute)}}}}
	pod := w.Pods[0]
	pod.Spec.NodeName = "a"
	for name, tc := range map[string]struct {
		evidence Evidence
		pod      corev1.PodStatus
		fact     string
		waits    bool // waiting is the remedy
	}{
		"events":                 {evidence: Evidence{Warnings: []corev1.Event{event}}, fact: "event FailedMount, 22m ago: no such file"},
		"before the pod's start": {Evidence{Warnings: []corev1.Event{event}}, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: started}, "event FailedMount, 22m ago, ended 21m ago: no such file", false},
		"no right":               {evidence: Evidence{NoEvents: true}, fact: "you have no right to list events, which may have the reason"},
		"a refusal":              {evidence: Evidence{Warnings: []corev1.Event{refusal}}, waits: true},
		"a refusal since":        {Evidence{Warnings: []corev1.Event{refusal}}, ready(23 * time.Minute), "", true},
		"prepared since":         {Evidence{Warnings: []corev1.Event{refusal}}, ready(20 * time.Minute), "event FailedPrepareDynamicResources, 22m ago, ended 20m ago: " + refusal.Message, false},
		"an init container":      {Evidence{Warnings: []corev1.Event{refusal}}, corev1.PodStatus{InitContainerStatuses: started}, "event FailedPrepareDynamicResources, 22m ago, ended 21m ago: " + refusal.Message, false},
	} {
		pod.Status = tc.pod
		if pod.Status.Phase == "" {
			pod.Status.Phase = corev1.PodPending
		}
		tc.evidence.Now = now
		e, err := cluster(w).Explain(t.Context(), q, tc.evidence)
		if err != nil || tc.fact != "" && !slices.Contains(e.Facts, tc.fact) {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
		if waits := slices.ContainsFunc(e.Advice, func(a string) bool { return strings.Contains(a, "waiting") }); waits != tc.waits || waits != slices.Contains(e.Causes, refusal.Message) {
			t.Errorf("%s: got the causes %q and the advice %q", name, e.Causes, e.Advice)
		}
	}
	q.Name = "claim/none"
	_, err := cluster(w).Explain(t.Context(), q, Evidence{})
	require.Error(t, "no such claim", err, gpu.ErrNotFound)
}

// What is wrong now has the remedy, not a restart of long ago.
func TestARestartIsNoReason(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	pod := w.Pods[0]
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(time.Now().Add(-48 * time.Hour))}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", RestartCount: 1, LastTerminationState: ended, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	explain := func() Explanation {
		t.Helper()
		e, err := cluster(w).Explain(t.Context(), Question{Namespace: "default", Name: pod.Name, Nodes: 1, Limit: time.Minute}, Evidence{Now: time.Now()})
		require.NoError(t, err)
		return e
	}
	if e := explain(); len(e.Advice) != 1 || !strings.Contains(e.Advice[0], "--previous") {
		t.Errorf("a pod that was started again: got %q", e.Advice)
	}
	w.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: v1alpha1.DriverName, Pool: "a", Device: w.Claims[0].Status.Allocation.Devices.Results[0].Device,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionShareUnserved, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMPSNotRunning, LastTransitionTime: metav1.Now()}},
	}}
	if e := explain(); e.Outcome != OutcomeFault || len(e.Advice) != 1 || strings.Contains(e.Advice[0], "--previous") {
		t.Errorf("its share is not served: got %s and %q", e.Outcome, e.Advice)
	}
}
