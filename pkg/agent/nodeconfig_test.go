// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

const pools = `
training: {offer: []}
inference: {offer: [share, mig], mig: {profiles: [1g.10gb]}, shares: {smallest: 4Gi}}
development: {offer: [share, timeslice], timeslice: {slots: 8}}
`

// setConfigs replaces the file of configurations.
func (n *node) setConfigs(t *testing.T, content string) {
	t.Helper()
	n.NodeConfigs = filepath.Join(n.KubeletPluginsDir, "..", "configs.yaml")
	next := n.NodeConfigs + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, n.NodeConfigs); err != nil {
		t.Fatal(err)
	}
}

func (n *node) pick(t *testing.T, config string) {
	t.Helper()
	n.setLabels(t, map[string]string{v1alpha1.LabelConfig: config})
}

// reports waits until the state of the node has the text.
func (a *running) reports(t *testing.T, text string) {
	t.Helper()
	changed, cancel := a.nodeConfig.Subscribe()
	defer cancel()
	for {
		if _, err := a.nodeConfig.Now(); text == "" && err == nil || err != nil && text != "" && strings.Contains(err.Error(), text) {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("the state is %s, want %q", a.controller.State(), text)
		}
	}
}

// A node moves through the pools of a release while a claim holds a share. The share
// stays as it is, and what each pool offers is there.
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
	if got := a.prepare(t, claim)["uid-small"]; got.Error != "" {
		t.Fatal(got.Error)
	}

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

// A share that was allocated before the smallest share was raised is prepared: the pod
// was promised it.
func TestASmallShareIsPreparedAfterTheSmallestIsRaised(t *testing.T) {
	t.Parallel()
	claim := shareFor("small", "gpu-1b-00", "2Gi", "0")
	n := newNode(t, claim)
	n.nameSlices(t)
	n.Supervisor = ""
	n.setConfigs(t, pools)
	n.pick(t, "inference")
	a := n.start(t)
	n.offers(t, func(devices []string) bool { return len(devices) == 64 })
	if got := a.prepare(t, claim)["uid-small"]; got.Error != "" {
		t.Error(got.Error)
	}
}
