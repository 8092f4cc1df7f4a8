// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const pools = `
training: {offer: []}
inference: {offer: [share, mig], mig: {profiles: [1g.10gb]}, shares: {smallest: 4Gi}}
development: {offer: [share, timeslice], timeslice: {slots: 8}}
`

// setConfigs replaces the file of configurations.
func (n *node) setConfigs(t *testing.T, content string) {
	t.Helper()
	n.NodeConfigs = n.write(t, "configs.yaml", content)
}

// write replaces a file at once and returns its path.
func (n *node) write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(n.KubeletPluginsDir, "..", name)
	if err := os.WriteFile(path+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func (n *node) pick(t *testing.T, config string) {
	t.Helper()
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: config})
}

// reports waits until the state of the node has the text.
func (a *running) reports(t *testing.T, text string) {
	t.Helper()
	changed, cancel := a.known.state.Subscribe()
	defer cancel()
	for {
		now := a.known.state.Configuration.Get()
		if err := now.Problem; now.Known && (text == "" && err == nil || err != nil && text != "" && strings.Contains(err.Error(), text)) {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("the state is %s, want %q", a.observers.controller.State(), text)
		}
	}
}

// A node moves through the pools of a release while a claim holds a share. The share
// stays unchanged, and the devices of each pool are published.
func TestANodeChangesItsConfigurationUnderAClaim(t *testing.T) {
	t.Parallel()
	claim := shareFor("small", "gpu-1b-00", "2Gi", "0")
	n := newNode(t, claim)
	n.nameSlices(t)
	n.Supervisor = ""
	n.setConfigs(t, pools)
	n.pick(t, "development")
	a := n.start(t)
	slots := func(want int64) func(map[string]resourceapi.Device) bool {
		return func(devices map[string]resourceapi.Device) bool {
			capacity := devices["gpu-1b-00-ts"].Capacity[v1alpha1.CapacitySlots]
			return capacity.Value.Value() == want
		}
	}
	n.shows(t, slots(8))
	a.mustPrepare(t, claim)

	n.pick(t, "training")
	n.shows(t, func(devices map[string]resourceapi.Device) bool {
		held := devices["gpu-1b-00"]
		return len(devices) == 8 && held.AllowMultipleAllocations != nil && len(held.Taints) == 1 && held.Taints[0].Key == v1alpha1.TaintWithdrawn &&
			devices["gpu-43-00"].AllowMultipleAllocations == nil
	})
	n.pick(t, "inference")
	n.shows(t, func(devices map[string]resourceapi.Device) bool {
		// Seven placements of the profile on each GPU, and no share smaller than 4Gi.
		memory := devices["gpu-1b-00"].Capacity[v1alpha1.CapacityMemory]
		return len(devices) == 8+8*7 && memory.RequestPolicy != nil && memory.RequestPolicy.ValidRange.Min.String() == "4Gi"
	})
	if got := a.prepare(t, claim)["uid-small"]; got.Error != "" {
		t.Errorf("the claim is prepared again: %s", got.Error)
	}

	n.pick(t, "learning")
	a.reports(t, "gpu.nvidia.com/config=learning is not followed: not found: there is no such configuration; known are: development, inference, training")
	n.offers(t, func(devices []string) bool { return len(devices) == 64 })
	n.pick(t, "development")
	a.reports(t, "")
	n.setConfigs(t, strings.ReplaceAll(pools, "slots: 8", "slots: 0"))
	a.reports(t, `configuration "development": timeslice.slots=0: invalid`)
	n.shows(t, slots(8))
	n.setConfigs(t, strings.ReplaceAll(pools, "slots: 8", "slots: 2"))
	n.shows(t, slots(2))
	a.reports(t, "")

	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: "development", v1alpha1.LabelOffer: "mig"})
	n.offers(t, func(devices []string) bool { return len(devices) > 100 })
}

const layouts = `
version: v1
mig-configs:
  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
  sevenths: [{devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}, {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false}]
`

// A configuration or a label names a layout, and both files and both labels are followed.
func TestANodeChangesItsLayout(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.nameSlices(t)
	n.setConfigs(t, `halves: {offer: [mig], mig: {layout: halves}}`)
	n.MIGLayouts, n.MIGConfigLabel = n.write(t, "layouts.yaml", layouts), true
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: "halves"})
	a := n.start(t)
	count := func(want int) func([]string) bool {
		return func(devices []string) bool { return len(devices) == want }
	}
	n.offers(t, count(16))
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: "halves", v1alpha1.LabelMIGConfig: "sevenths"})
	n.offers(t, count(7+7))
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: "halves", v1alpha1.LabelMIGConfig: "thirds"})
	a.reports(t, `MIG configuration "thirds": not found; known are: halves, sevenths`)
	n.offers(t, count(7+7))
	n.write(t, "layouts.yaml", strings.ReplaceAll(layouts, "sevenths: [{devices: [0],", "thirds: [{devices: [0],"))
	a.reports(t, "")
	n.write(t, "layouts.yaml", "version: v2")
	a.reports(t, `layouts.yaml is not followed: invalid: version "v2"`)
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: "halves"})
	n.offers(t, count(16))
}

// installed makes the node's agents pods of a DaemonSet.
func (n *node) installed(t *testing.T) {
	t.Helper()
	n.DaemonSet = "gpus/agent"
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: "agent"}}
	if _, err := n.client.AppsV1().DaemonSets("gpus").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A wrong word, and then a restart of an agent that no claim uses: the node keeps its
// offer, and goes back to its inputs when they are right. The last agent of a release that
// is uninstalled leaves nothing.
func TestARestartWithAWrongWord(t *testing.T) {
	t.Parallel()
	const isolated = "isolated: {offer: [mig], mig: {layout: halves, keep: true}}\n"
	claim := claimFor("one", "gpu-1b-00-mig-3g-40gb-0")
	n := newNode(t, claim)
	n.nameSlices(t)
	n.installed(t)
	n.admitViewers(t)
	n.Supervisor = ""
	n.setConfigs(t, pools+isolated)
	n.MIGLayouts = n.write(t, "layouts.yaml", layouts)
	n.pick(t, "isolated")
	halves := func(devices []string) bool {
		return len(devices) == 16 && !slices.ContainsFunc(devices, func(d string) bool { return !strings.Contains(d, "-mig-3g-40gb-") })
	}
	a := n.start(t)
	n.offers(t, halves)
	a.mustPrepare(t, claim)
	a.unprepare(t, claim)
	kept := n.uuids(t)
	n.mustStop(t, a)

	n.setConfigs(t, pools+"isolated: {ofer: [mig]}")
	n.forgetSlices(t)
	a = n.start(t)
	a.reports(t, `unknown field "ofer"; the node still offers "mig"`)
	if got := ask(t, a.handler(), agentv1.PathNode, "good"); !strings.Contains(got.Body.String(), "the node still offers") {
		t.Errorf("viewers read %s, want the mistake", got.Body)
	}
	n.offers(t, halves)
	if _, err := a.claims.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if got := n.uuids(t); len(kept) != 1 || !slices.Equal(got, kept) {
		t.Errorf("MIG devices %q, want %q, which are kept", got, kept)
	}

	n.setConfigs(t, pools+isolated)
	a.reports(t, "")
	n.offers(t, halves)
}

// forgetSlices deletes the slices of an agent that has ended.
func (n *node) forgetSlices(t *testing.T) {
	t.Helper()
	if err := n.client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The record of an idle node outlives a restart, and goes when the release is uninstalled.
func TestTheRecordOfAnIdleNode(t *testing.T) {
	t.Parallel()
	record := "agent/node-config/followed.record"
	n := newNode(t)
	n.nameSlices(t)
	n.installed(t)
	a := n.start(t)
	n.offers(t, func(devices []string) bool { return len(devices) == 8 })
	n.mustStop(t, a)
	if _, err := os.Stat(filepath.Join(n.driverDir(), record)); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	a = n.start(t)
	if err := n.client.AppsV1().DaemonSets("gpus").Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.mustStop(t, a)
	n.wantNothing(t)
}

func TestWhetherAnAgentWillFollow(t *testing.T) {
	gone := metav1.Now()
	daemonSets := schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	for name, tc := range map[string]struct {
		daemonSet string
		set       *appsv1.DaemonSet
		err       error
		want      bool
	}{
		"its DaemonSet exists":           {"gpus/agent", &appsv1.DaemonSet{}, nil, true},
		"its DaemonSet ends":             {"gpus/agent", &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &gone}}, nil, false},
		"its DaemonSet is gone":          {"gpus/agent", nil, apierrors.NewNotFound(daemonSets, "agent"), false},
		"its rights are gone":            {"gpus/agent", nil, apierrors.NewForbidden(daemonSets, "agent", errors.New("no")), false},
		"its account is gone":            {"gpus/agent", nil, apierrors.NewUnauthorized("no"), false},
		"the API server does not answer": {"gpus/agent", nil, errors.New("connection refused"), true},
		"it has no DaemonSet":            {"", &appsv1.DaemonSet{}, nil, false},
	} {
		client := fake.NewClientset()
		client.PrependReactor("get", "daemonsets", func(ktesting.Action) (bool, runtime.Object, error) { return true, tc.set, tc.err })
		if got := isInstalled(t.Context(), client, tc.daemonSet); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for name, valid := range map[string]bool{"": true, "gpus/agent": true, "agent": false, "/agent": false, "gpus/": false, "a/b/c": false} {
		if err := (&Config{DaemonSet: name}).checkDaemonSet(); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPrintSlicesRefusesFilesThatAreNotValid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*node)
		want   string
	}{
		"no such layout": {func(n *node) {
			n.Offer, n.Layout, n.MIGLayouts = "share,mig", "half", n.write(t, "layouts.yaml", layouts)
		}, `"half": not found; known are: halves, sevenths`},
		"no file of layouts": {func(n *node) { n.MIGLayouts = "/none.yaml" }, "/none.yaml is not followed: open /none.yaml"},
		"layouts of static":  {func(n *node) { n.Offer, n.Layout, n.MIG.Static = "share,mig", "halves", true }, `"halves": invalid: an administrator makes`},
		"no configurations":  {func(n *node) { n.NodeConfigs = "/none.yaml" }, "/none.yaml is not followed: open /none.yaml"},
		"bad configurations": {func(n *node) { n.setConfigs(t, "a: {slots: 3}") }, `configuration "a": invalid: unknown field "slots"`},
	} {
		n := newNode(t)
		tc.change(n)
		var slices, problems strings.Builder
		if err := n.print(t, &slices, &problems); err == nil || !strings.Contains(err.Error(), tc.want) || slices.Len() > 0 {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestUnknownAttributesAreAProblemOfTheConfiguration(t *testing.T) {
	c := testConfig()
	a := &agent{Config: c, known: knowledge{state: state.New(state.Fixed{})}}
	c.newNodeConfig(nil, &a.known.state.Configuration).SetNode(cluster.Node{}, nil)
	if err := a.configProblem(); err != nil {
		t.Errorf("a node without a problem has %v", err)
	}
	c.UnknownAttributes = gpu.ErrInvalid
	if err := a.configProblem(); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("got %v, want the unknown attributes", err)
	}
}
