// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// nvlink returns the NVLink attributes of a device in one line, lists in brackets.
func nvlink(device resourceapi.Device) string {
	var parts []string
	for _, name := range []resourceapi.QualifiedName{"nvlinkDomain", "nvlinkPeers", "nvlinkCliques", "nvlinkLinks"} {
		switch a, known := device.Attributes[name]; {
		case !known:
		case a.StringValue != nil:
			parts = append(parts, *a.StringValue)
		case a.IntValue != nil:
			parts = append(parts, fmt.Sprint(*a.IntValue))
		default:
			parts = append(parts, fmt.Sprint(a.StringValues))
		}
	}
	return strings.Join(parts, " | ")
}

func switched(t *testing.T, n int, address func(i int) gpu.PCIAddress) gpu.Node {
	node := h100(t, n)
	for i := range node.GPUs {
		node.GPUs[i].Address = address(i)
	}
	return node
}

func TestNVLinkAttributes(t *testing.T) {
	cut := dgx1(t)
	for i := range cut.GPUs[0].Links {
		cut.GPUs[0].Links[i].Active = false
	}
	lists := sharing()
	lists.ListAttributes = true
	grace := switched(t, 4, func(i int) gpu.PCIAddress {
		return gpu.PCIAddress{Domain: []uint32{8, 9, 0x18, 0x19}[i], Bus: 1}
	})
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		of      int
		want    string
	}{
		"a corner of a DGX-1":  {sharing(), dgx1(t), 0, "06-00 | 07-00,0a-00,0b-00,85-00 | 6"},
		"the other quad":       {sharing(), dgx1(t), 7, "85-00 | 0b-00,85-00,86-00,89-00 | 6"},
		"a GPU cut off":        {sharing(), cut, 0, ""},
		"what it was cut from": {sharing(), cut, 1, "07-00 | 0a-00,0b-00,86-00 | 6"},
		"a bridge":             {sharing(), bridges(t), 3, "b1-00 | b1-00 | 4"},
		"a Grace Blackwell tray": {sharing(), grace, 0,
			"0008-01-00-0 | 0009-01-00-0,0018-01-00-0,0019-01-00-0 | 18"},
		"16 GPUs: buses alone": {sharing(), switched(t, 16, func(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(0x10 + i)} }), 0,
			"10-00 | 11,12,13,14,15,16,17,18,19,1a,1b,1c,1d,1e,1f | 18"},
		"16 GPUs on one bus: no short list distinguishes them": {sharing(), switched(t, 16, func(i int) gpu.PCIAddress { return gpu.PCIAddress{Device: uint8(i)} }), 0,
			"00-00 | 18"},
		"lists in a DGX-1": {lists, dgx1(t), 0,
			"06-00 | [gpu-07-00 gpu-0a-00 gpu-0b-00 gpu-85-00] | [06-00,07-00,0a-00,0b-00 06-00,85-00] | 6"},
		"lists of 16 GPUs": {lists, switched(t, 16, func(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(0x10 + i)} }), 15,
			"10-00 | [gpu-10-00 gpu-11-00 gpu-12-00 gpu-13-00 gpu-14-00 gpu-15-00 gpu-16-00 gpu-17-00 gpu-18-00 gpu-19-00 gpu-1a-00 gpu-1b-00 gpu-1c-00 gpu-1d-00 gpu-1e-00]" +
				" | [10,11,12,13,14,15,16,17,18,19,1a,1b,1c,1d,1e,1f] | 18"},
		"lists of more GPUs than the API takes": {lists, switched(t, 32, func(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(0x10 + i)} }), 0,
			"10-00 | 18"},
	} {
		t.Run(name, func(t *testing.T) {
			device := devices(t, detailed(tc.catalog), tc.node, nil)[tc.of]
			require.Same(t, "domain, peers, cliques, links", tc.want, nvlink(device))
		})
	}
}

func TestNoDeviceExceedsTheAttributeLimits(t *testing.T) {
	t.Parallel()
	c := sharing()
	c.ListAttributes = true
	for n := range 65 {
		node := switched(t, n, func(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(0x10 + i)} })
		for i := range node.GPUs {
			node.GPUs[i].Fabric = &gpu.Fabric{ClusterUUID: "6f1c2f5e-8a4b-4c6e-9f0e-2f4a6b8c0d1e", CliqueID: 1}
		}
		for _, device := range devices(t, c, node, nil) {
			values := 0
			for name, a := range device.Attributes {
				values += max(1, len(a.StringValues))
				if a.StringValue != nil && len(*a.StringValue) > 64 {
					t.Errorf("%s has %d bytes", name, len(*a.StringValue))
				}
			}
			if values > 48 || len(device.Attributes)+len(device.Capacity) > 32 {
				t.Fatalf("a GPU of %d has %d attributes and capacities with %d values", n, len(device.Attributes)+len(device.Capacity), values)
			}
		}
	}
}
