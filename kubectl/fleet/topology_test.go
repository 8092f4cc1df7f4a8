// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// paths returns the paths between the GPUs of a node, a line for each GPU.
func paths(node fleet.Node) string {
	var lines []string
	for _, g := range node.GPUs {
		var row []string
		for _, other := range node.GPUs {
			row = append(row, string(g.PathTo(other)))
		}
		lines = append(lines, strings.Join(row, " "))
	}
	return strings.Join(lines, "\n")
}

// publish sets an attribute of each of the four GPUs of a T4 node, unless it is empty.
func publish(w *fleettest.World, name resourceapi.QualifiedName, values ...string) {
	for i, value := range values {
		if value != "" {
			w.Slices[0].Spec.Devices[i].Attributes[name] = resourceapi.DeviceAttribute{StringValue: ptr.To(value)}
		}
	}
}

func TestPathsBetweenGPUs(t *testing.T) {
	root := func(w *fleettest.World) {
		publish(w, "resource.kubernetes.io/pcieRoot", "pci0000:00", "pci0000:00", "pci0000:00", "pci0000:00")
	}
	links := func(n ...int) map[string]int {
		all := map[string]int{}
		for i, name := range []string{"gpu-18-00", "gpu-3b-00", "gpu-86-00", "gpu-af-00"} {
			if n[i] > 0 {
				all[name] = n[i]
			}
		}
		return all
	}
	for name, tc := range map[string]struct {
		given  func(*fleettest.World)
		wiring func(i int) *fleet.Wiring
		want   string // the first GPU
	}{
		"one root, and switches are not known": {given: root, want: "X PCI PCI PCI"},
		"switches of one root": {given: func(w *fleettest.World) {
			root(w)
			publish(w, "pcieSwitch", "0000:01:00.0/0000:05:00.0", "0000:01:00.0/0000:05:00.0", "0000:01:00.0/0000:08:00.0", "0000:81:00.0")
		}, want: "X PIX PXB PHB"},
		"a switch that is not known": {given: func(w *fleettest.World) {
			root(w)
			publish(w, "pcieSwitch", "0000:01:00.0", "", "0000:01:00.0", "0000:02:00.0")
		}, want: "X PCI PIX PHB"},
		"peers of other domains": {given: func(w *fleettest.World) {
			publish(w, "nvlinkDomain", "18-00", "18-00", "86-00", "86-00")
			publish(w, "nvlinkPeers", "3b-00,86-00")
		}, want: "X NV NV NODE"},
		"peers by their buses": {given: func(w *fleettest.World) { publish(w, "nvlinkPeers", "3b,86") }, want: "X NV NV NODE"},
		"links that the agent has counted": {wiring: func(i int) *fleet.Wiring {
			return []*fleet.Wiring{{Links: links(0, 1, 2, 0)}, {}, {}, {}}[i]
		}, want: "X NV1 NV2 NODE"},
		"no switch, as the agent knows": {given: root, wiring: func(int) *fleet.Wiring { return &fleet.Wiring{} }, want: "X PHB PHB PHB"},
		"a domain whose links are down": {given: func(w *fleettest.World) { publish(w, "nvlinkDomain", "18-00", "18-00") },
			wiring: func(int) *fleet.Wiring { return &fleet.Wiring{} }, want: "X NODE NODE NODE"},
		"a switch that only the agent knows": {given: root, wiring: func(i int) *fleet.Wiring {
			return &fleet.Wiring{PCIeSwitch: fmt.Sprintf("0000:%02d:00.0", i/2)}
		}, want: "X PIX PHB PHB"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share")
			if tc.given != nil {
				tc.given(w)
			}
			node := w.Fleet().Nodes()[0]
			for i := range node.GPUs {
				if tc.wiring != nil {
					node.GPUs[i].Wiring = tc.wiring(i)
				}
			}
			first, _, _ := strings.Cut(paths(node), "\n")
			if diff := cmp.Diff(tc.want, first); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}
