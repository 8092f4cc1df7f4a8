// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func taintRule(pool, device string) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: ptr.To(pool), Device: ptr.To(device)},
		Taint:          resourceapi.DeviceTaint{Key: "example.com/repair", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}
}

func taintAll(w *fleettest.World, pool string, slice *resourceapi.ResourceSlice) {
	for _, device := range slice.Spec.Devices {
		w.TaintRules = append(w.TaintRules, taintRule(pool, device.Name))
	}
}

func TestTheNearestMissOfANode(t *testing.T) {
	for name, tc := range map[string]struct {
		node    string
		held    []string
		tainted bool
		claim   string
		want    []fleet.Condition
	}{
		"it fits":                             {"t4 share", nil, false, "", nil},
		"the GPU is in use":                   {"t4 share", []string{"count=4"}, false, "", []fleet.Condition{fleet.ConditionHolders}},
		"too little is left":                  {"t4 share", []string{"count=3", "memory=10Gi"}, false, "memory=10Gi", []fleet.Condition{fleet.ConditionHolders}},
		"a rule taints it":                    {"t4 share", nil, true, "", []fleet.Condition{fleet.ConditionTaints}},
		"it is tainted, and in use":           {"t4 share", []string{"count=4"}, true, "", []fleet.Condition{fleet.ConditionTaints, fleet.ConditionHolders}},
		"GPUs that are not linked":            {"dgx1-v100 share", nil, false, "count=5 match=nvlinkDomain", []fleet.Condition{fleet.ConditionConstraints}},
		"another model":                       {"t4 share", nil, false, "cel=device.attributes['gpu.nvidia.com'].productName.contains('H100')", []fleet.Condition{fleet.ConditionSelectors, fleet.ConditionConstraints, fleet.ConditionTaints, fleet.ConditionHolders}},
		"more memory than a GPU has":          {"t4 share", nil, false, "memory=40Gi", []fleet.Condition{fleet.ConditionSize, fleet.ConditionSelectors, fleet.ConditionConstraints, fleet.ConditionTaints, fleet.ConditionHolders}},
		"a class that the node lacks":         {"t4 share", nil, false, "class=timeslice.nvidia.com", []fleet.Condition{fleet.ConditionClass, fleet.ConditionSelectors, fleet.ConditionSize, fleet.ConditionTaints, fleet.ConditionConstraints, fleet.ConditionHolders}},
		"more devices than the node has":      {"t4 share", nil, false, "count=9", nil},
		"the same, and other devices":         {"dgx-h100 share.mig", nil, false, "count=9", nil},
		"a MIG device of a GPU that is whole": {"dgx-h100 mig", []string{"count=8"}, false, "class=mig-1g.10gb", []fleet.Condition{fleet.ConditionHolders}},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a="+tc.node)
			for i, words := range tc.held {
				w.Hold("a", fmt.Sprintf("held-%d", i), words)
			}
			if tc.tainted {
				taintAll(w, "a", w.Slices[0])
			}
			all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, fleettest.Claim("new", tc.claim))
			require.NoError(t, err)
			if len(all) != 1 || all[0].Problem != nil || all[0].Fits() != (name == "it fits") {
				t.Fatalf("got %+v", all)
			}
			if diff := cmp.Diff(tc.want, all[0].Missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodesAreOrderedByTheNearestMiss(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share", "c=dgx-h100 share", "d=t4 share")
	w.Hold("b", "held", "count=4")
	taintAll(w, "d", w.Slices[len(w.Slices)-1])
	all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, fleettest.Claim("new", "cel=device.attributes['gpu.nvidia.com'].productName.contains('T4')"))
	require.NoError(t, err)
	var got []string
	for _, v := range all {
		got = append(got, v.Node)
	}
	if diff := cmp.Diff([]string{"a", "b", "d", "c"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestWhyEachDeviceIsNotAllocated(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share.timeslice")
	w.Hold("a", "whole", "")
	w.Hold("a", "share", "memory=60Gi")
	w.TaintRules = append(w.TaintRules, taintRule("a", "gpu-52-00"))
	all, err := w.Fleet().NewSearch(0).Check(t.Context(), "a", fleettest.Claim("new", "class=mps.nvidia.com memory=40Gi cel=device.attributes['gpu.nvidia.com'].uuid != 'GPU-0'"))
	require.NoError(t, err)
	if len(all) != 1 || all[0].Request != "gpu" {
		t.Fatalf("got %+v", all)
	}
	got := map[string][]fleet.Condition{}
	for _, check := range all[0].Devices {
		got[check.Device.ID.Device] = check.Missing
	}
	for device, want := range map[string][]fleet.Condition{
		"gpu-1b-00":    {fleet.ConditionHolders},
		"gpu-43-00":    {fleet.ConditionHolders},
		"gpu-52-00":    {fleet.ConditionTaints},
		"gpu-61-00":    nil,
		"gpu-43-00-ts": {fleet.ConditionClass},
	} {
		if diff := cmp.Diff(want, got[device]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", device, diff)
		}
	}
	if n := all[0].Meeting(); n != 5 {
		t.Errorf("%d devices meet the request", n)
	}
}

// A monitor keeps no claim away.
func TestMonitorsAreNoHolders(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share.mig")
	w.Hold("a", "dcgm", "class=mig-1g.10gb")
	w.Hold("a", "small", "class=mig-1g.10gb")
	admin, device := true, w.Claims[1].Status.Allocation.Devices.Results[0].Device
	w.Claims[0].Status.Allocation.Devices.Results[0].AdminAccess = &admin
	f := w.Fleet()
	all, err := f.NewSearch(0).Check(t.Context(), "a", fleettest.Claim("new", ""))
	require.NoError(t, err)
	for _, check := range all[0].Devices {
		if check.Device.ID.Device != fleet.GPUOf(device) {
			continue
		}
		if got := strings.Join(f.Reasons(check, all[0].Exactly), " "); !strings.Contains(got, "claim default/small of pod small") || strings.Contains(got, "dcgm") {
			t.Errorf("got %q", got)
		}
		return
	}
	t.Errorf("no reason for the GPU of %s", device)
}

// A node without shares publishes devices for one claim each.
func TestAnExclusiveDeviceIsInUse(t *testing.T) {
	w := fleettest.New(t, "a=t4")
	w.Hold("a", "three", "count=3")
	got, err := w.Fleet().Free(t.Context(), 20, fleettest.Claim("free", ""))
	require.NoError(t, err)
	if diff := cmp.Diff([][]fleet.FreeOnNode{{{Node: "a", Claims: 1}}}, got); diff != "" {
		t.Errorf("free devices (-want +got):\n%s", diff)
	}
}

// Free searches nodes that are alike once. Each node has the number that it has alone.
func TestFreeDevicesOfNodesThatAreAlike(t *testing.T) {
	shapes := []struct{ model, held string }{
		{"t4 share", ""}, {"t4 share", "memory=4Gi"}, {"t4 share", "memory=6Gi"}, {"t4", ""}, {"dgx-h100 share.mig", ""},
	}
	add := func(w *fleettest.World, node, held string) {
		if held != "" {
			w.Hold(node, "held-"+node, "class=mps.nvidia.com "+held)
		}
	}
	var names []string
	for i := range 3 * len(shapes) {
		names = append(names, fmt.Sprintf("n%02d=%s", i, shapes[i%len(shapes)].model))
	}
	all := fleettest.New(t, names...)
	for i := range names {
		add(all, fmt.Sprintf("n%02d", i), shapes[i%len(shapes)].held)
	}
	unique := func(w *fleettest.World) {
		for _, slice := range w.Slices {
			for i := range slice.Spec.Devices {
				uuid := slice.Spec.Pool.Name + "-" + slice.Spec.Devices[i].Name
				slice.Spec.Devices[i].Attributes["uuid"] = resourceapi.DeviceAttribute{StringValue: &uuid}
			}
		}
	}
	unique(all)
	var alone []*fleet.Fleet
	for i, name := range names {
		w := fleettest.New(t, name)
		add(w, fmt.Sprintf("n%02d", i), shapes[i%len(shapes)].held)
		unique(w)
		alone = append(alone, w.Fleet())
	}
	for _, words := range [][]string{
		{""}, {"class=mps.nvidia.com memory=3Gi"}, {"class=mig.nvidia.com"},
		{"", "class=mps.nvidia.com memory=3Gi", "class=mig.nvidia.com", "match=uuid"},
		// Both nodes have this device, with other values.
		{"", "cel=device.attributes['gpu.nvidia.com'].uuid in ['n05-gpu-18-00', 'n08-gpu-af-00']"},
		// Which attributes it reads is not known before it is evaluated.
		{"cel=device.attributes['gpu.nvidia.com'].exists(name, name == 'uuid' && device.attributes['gpu.nvidia.com'][name] == 'n10-gpu-18-00')", ""},
	} {
		var claims []*resourceapi.ResourceClaim
		for _, w := range words {
			claims = append(claims, fleettest.Claim("free", w))
		}
		got, err := all.Fleet().Free(t.Context(), 100, claims...)
		require.NoError(t, err)
		want := make([][]fleet.FreeOnNode, len(claims))
		for _, node := range alone {
			for c, claim := range claims {
				one, err := node.Free(t.Context(), 100, claim)
				require.NoError(t, err)
				want[c] = append(want[c], one[0]...)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got[0]) == 0 {
			t.Errorf("%q (-want +got):\n%s", words, diff)
		}
	}
}

func TestAPoolOfWhichSlicesAreMissing(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Slices[0].Spec.Pool.ResourceSliceCount = 2
	all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, fleettest.Claim("new", ""))
	require.NoError(t, err)
	if all[0].Fits() || !errors.Is(all[0].Problem, gpu.ErrNotReady) {
		t.Errorf("got %+v, want a pool that is not ready", all[0])
	}
	if nodes := w.Fleet().IncompleteNodes(); !slices.Equal(nodes, []string{"a"}) {
		t.Errorf("got %q, want an incomplete node", nodes)
	}
}

func TestTheSelectorThatFails(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	c := fleettest.Claim("new", "cel=device.attributes['gpu.nvidia.com'].architecture == 'Turing'")
	selectors := &c.Spec.Devices.Requests[0].Exactly.Selectors
	for _, expression := range []string{"device.attributes['gpu.nvidia.com'].migCapable", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"} {
		*selectors = append(*selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	all, err := w.Fleet().NewSearch(0).Check(t.Context(), "a", c)
	require.NoError(t, err)
	if diff := cmp.Diff([]int{1, 2}, all[0].Devices[0].Selectors); diff != "" {
		t.Errorf("selectors (-want +got):\n%s", diff)
	}
}

// The allocator evaluates no selector of a device that is in use. So a failing selector
// shows only without the holders.
func TestASelectorThatFailsOnADeviceInUse(t *testing.T) {
	w := fleettest.New(t, "a=t4")
	w.Hold("a", "held", "count=4")
	c := fleettest.Claim("new", "cel=device.attributes['gpu.nvidia.com'].profile == '1g.10gb'")
	checks, err := w.Fleet().NewSearch(0).Check(t.Context(), "a", c)
	require.NoError(t, err)
	for _, d := range checks[0].Devices {
		if diff := cmp.Diff([]fleet.Condition{fleet.ConditionSelectors, fleet.ConditionHolders}, d.Missing); diff != "" {
			t.Errorf("%s (-want +got):\n%s", d.Device.ID.Device, diff)
		}
	}
	all, err := w.Fleet().NewSearch(0).Verdicts(t.Context(), nil, c)
	require.NoError(t, err)
	if all[0].Missing != nil || !errors.Is(all[0].Problem, gpu.ErrInvalid) {
		t.Errorf("got %+v, want the selector as a problem, and nothing to wait for", all[0])
	}
}

func TestTheReasonOfASelectorHasTheValuesThatItReads(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	f := w.Fleet()
	for expression, want := range map[string]string{
		"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('15Gi')) >= 0 && device.attributes['gpu.nvidia.com'].productName == 'A'": "memory is 14916Mi, productName is Tesla T4",
		"has(device.attributes['gpu.nvidia.com'].memory)":    "attribute gpu.nvidia.com/memory is absent",
		"has(device.capacity['gpu.nvidia.com'].productName)": "capacity gpu.nvidia.com/productName is absent",
		"has(device.capacity['other.example.com'].memory)":   "capacity other.example.com/memory is absent",
	} {
		all, err := f.NewSearch(0).Check(t.Context(), "a", fleettest.Claim("new", "cel="+expression))
		require.NoError(t, err)
		reasons := f.Reasons(all[0].Devices[0], all[0].Exactly)
		if diff := cmp.Diff([]string{"the selector does not select it: " + want}, reasons); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

func TestFreeDevices(t *testing.T) {
	w := fleettest.New(t, "a=dgx-h100 share", "b=t4 share")
	w.Hold("a", "held", "count=7")
	w.Hold("b", "held-too", "count=3")
	for words, want := range map[string][]fleet.FreeOnNode{
		"":                                  {{Node: "a", Claims: 1}, {Node: "b", Claims: 1}},
		"class=mps.nvidia.com memory=10Gi":  {{Node: "a", Claims: 7}, {Node: "b", Claims: 1}},
		"class=mps.nvidia.com memory=100Mi": {{Node: "a", Claims: 20}, {Node: "b", Claims: 14}},
		"class=timeslice.nvidia.com":        {},
	} {
		got, err := w.Fleet().Free(t.Context(), 20, fleettest.Claim("free", words))
		require.NoError(t, err)
		if diff := cmp.Diff([][]fleet.FreeOnNode{want}, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", words, diff)
		}
	}
}
