// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/plugin"
)

// A monitoring agent sees every GPU of a node although claims have the GPUs. It
// does so before and after a restart of the agent.
func TestAgentLetsMonitorsSeeGPUsThatAreInUse(t *testing.T) {
	t.Parallel()
	busy, watching := claimFor("busy", "gpu-1b-00"), claimFor("watching", "node-gpus")
	yes := true
	watching.Status.Allocation.Devices.Results[0].AdminAccess = &yes
	n := newNode(t, busy, watching)
	n.label(t, "share.monitor")
	a := n.start(t)
	n.offers(t, func(devices []string) bool { return slices.Contains(devices, "node-gpus") })

	results := a.prepare(t, busy, watching)
	for uid, got := range results {
		if got.Error != "" || len(got.Devices) != 1 {
			t.Fatalf("%s: %v", uid, got)
		}
	}
	if data := reported(t, n, watching); data.Kind != "DeviceData" || data.UUID != "" || data.PCIBusID != "" || data.Share != nil {
		t.Errorf("status.devices has the data %+v, want none of a single GPU", data)
	}
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprintf("/dev/nvidia%d", i))
	}
	want = append(want, "/dev/nvidia-caps/nvidia-cap2")
	if diff := cmp.Diff(want, n.deviceNodes(t, string(watching.UID))); diff != "" {
		t.Errorf("device nodes (-want +got):\n%s", diff)
	}
	healthy := func() bool {
		return slices.ContainsFunc(health{a.controller}.Health(), func(h plugin.Health) bool { return h.Device == "node-gpus" && h.Healthy })
	}
	// The API server has the device a moment before the agent knows that.
	for !healthy() {
		if t.Context().Err() != nil {
			t.Fatal("the kubelet is not told that the device is healthy")
		}
	}

	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	// No longer offered, and held: it stays.
	n.label(t, "share")
	b := n.start(t)
	again := b.prepare(t, watching)["uid-watching"]
	if diff := cmp.Diff(results["uid-watching"].String(), again.String()); diff != "" {
		t.Errorf("devices after a restart (-before +after):\n%s", diff)
	}
	if err := b.kubelet.Unprepare(t.Context(), watching); err != nil {
		t.Fatal(err)
	}
	n.offers(t, func(devices []string) bool { return len(devices) == 8 })
}

// deviceNodes of the one device of a claim.
func (n *node) deviceNodes(t *testing.T, uid string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.CDIDir, "gpu.nvidia.com-claim-"+uid+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, node := range spec.Devices[0].ContainerEdits.DeviceNodes {
		paths = append(paths, node.Path)
	}
	return paths
}
