// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func sharing() catalog.Inputs {
	return catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: "share", Shares: catalog.ShareOffer{MPS: true}}}
}

// slicing offers GPUs in turns too.
func slicing(c catalog.Inputs) catalog.Inputs {
	c.Offer += ",timeslice"
	return c
}

// seating offers seats of GPUs too.
func seating(c catalog.Inputs) catalog.Inputs {
	c.Offer += ",seat"
	return c
}

// devices publishes the node and returns the devices of its only pool in order.
func devices(t testing.TB, c catalog.Inputs, node gpu.Node, conditions catalog.Conditions) []resourceapi.Device {
	t.Helper()
	c.Conditions = conditions
	resources := catalog.New(c).Resources(node, nil)
	if names := slices.Collect(maps.Keys(resources.Pools)); !slices.Equal(names, []string{"node-1"}) {
		t.Fatalf("pools %v, want node-1 alone", names)
	}
	var all []resourceapi.Device
	for _, slice := range resources.Pools["node-1"].Slices {
		all = append(all, slice.Devices...)
	}
	return all
}

// render returns the words of a device (see slicesText), one per line.
func render(device resourceapi.Device) string {
	w := deviceWords(device, nil)
	var lines []string
	for _, field := range slices.Sorted(maps.Keys(w)) {
		lines = append(lines, w[field])
	}
	return strings.Join(lines, "\n")
}

// detailed publishes every attribute.
func detailed(c catalog.Inputs) catalog.Inputs {
	c.Selection = kind.Selection{Level: kind.LevelAll}
	return c
}

// lean publishes the fewest attributes.
func lean(c catalog.Inputs) catalog.Inputs {
	c.Selection = kind.Selection{Level: kind.LevelLean}
	return c
}

func TestUnknownValuesAreNotPublished(t *testing.T) {
	node := gpu.Node{GPUs: []gpu.GPU{{Address: gpu.PCIAddress{Bus: 0x1b}}}}
	want := `compute:100
computeEnforcement="none"
enforcement="none"
memory:0
memoryEnforcement="none"
migCapable=false
resource.kubernetes.io/pciBusID="0000:1b:00.0"
sharing="none"
type="gpu"`
	require.Same(t, "device", want, render(devices(t, detailed(sharing()), node, nil)[0]))
}

func TestMemoryIsPublishedInWholeSteps(t *testing.T) {
	for _, tc := range []struct {
		bytes     uint64
		want      string
		shareable bool
	}{
		{85520809984, "81559Mi", true},
		{85520809984 + 1<<20 - 1, "81559Mi", true},
		{2 << 20, "2Mi", true},
		{1 << 20, "1Mi", false},
	} {
		t.Run(fmt.Sprint(tc.bytes), func(t *testing.T) {
			node := h100(t, 1)
			node.GPUs[0].MemoryBytes = tc.bytes
			device := devices(t, sharing(), node, nil)[0]
			memory := device.Capacity[v1alpha1.CapacityMemory]
			if memory.Value.String() != tc.want {
				t.Errorf("memory is %s, want %s", memory.Value.String(), tc.want)
			}
			if shareable := device.AllowMultipleAllocations != nil; shareable != tc.shareable {
				t.Errorf("shareable is %v, want %v", shareable, tc.shareable)
			}
			if p := memory.RequestPolicy; p != nil && p.Default.Cmp(memory.Value) != 0 {
				t.Errorf("a request without memory takes %s of %s", p.Default, memory.Value.String())
			}
		})
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	for in, want := range map[string]string{
		"570.86.15":       "570.86.15",
		"535.54.03":       "535.54.3",
		"390.48":          "390.48.0",
		"570":             "570.0.0",
		"":                "",
		"31.0.15.3623":    "",
		"570.86.15-open":  "",
		"not even a dot":  "",
		"1..2":            "",
		"-1.2.3":          "",
		"570.86.15\n":     "",
		"+570.86.15":      "",
		"0x1f.2.3":        "",
		"570.000.0000001": "570.0.1",
	} {
		t.Run(in, func(t *testing.T) {
			node := h100(t, 1)
			node.DriverVersion = in
			got := devices(t, detailed(sharing()), node, nil)[0].Attributes["driverVersion"].VersionValue
			if want == "" && got != nil || want != "" && (got == nil || *got != want) {
				t.Errorf("driverVersion of %q is %v, want %q", in, got, want)
			}
		})
	}
}

func TestStringsKeepToTheLimit(t *testing.T) {
	node := h100(t, 1)
	node.GPUs[0].ProductName = strings.Repeat("x", 63) + "é and more"
	node.GPUs[0].Brand = "br\xffand"
	node.GPUs[0].UUID = "GPU-" + strings.Repeat("0", 61)
	attributes := devices(t, detailed(sharing()), node, nil)[0].Attributes
	if got := *attributes["productName"].StringValue; got != strings.Repeat("x", 63) {
		t.Errorf("a long product name is published as %q", got)
	}
	if got := *attributes["brand"].StringValue; got != "brand" {
		t.Errorf("a brand that is not UTF-8 is published as %q", got)
	}
	if got, published := attributes["uuid"]; published {
		t.Errorf("a shortened UUID is none, and is published as %q", *got.StringValue)
	}
}

func TestDevicesAreInOrderOfTheirAddress(t *testing.T) {
	node := h100(t, 16)
	slices.Reverse(node.GPUs)
	var names []string
	for _, device := range devices(t, sharing(), node, nil) {
		names = append(names, device.Name)
	}
	want := []string{
		"gpu-1b-00", "gpu-43-00", "gpu-52-00", "gpu-61-00", "gpu-9d-00", "gpu-c3-00", "gpu-d1-00", "gpu-df-00",
		"gpu-0001-1b-00-0", "gpu-0001-43-00-0", "gpu-0001-52-00-0", "gpu-0001-61-00-0",
		"gpu-0001-9d-00-0", "gpu-0001-c3-00-0", "gpu-0001-d1-00-0", "gpu-0001-df-00-0",
	}
	require.Same(t, "devices", want, names)
}

func TestATaintOnAGPUIsOnAllItsDevices(t *testing.T) {
	node := first(t, 2, "dgx-h100")
	c := seating(slicing(listed(t, "3g.40gb")))
	for _, device := range devices(t, c, node, catalog.Conditions{node.GPUs[1].Address: {Cause: "xid-79"}}) {
		var want []resourceapi.DeviceTaint
		if kindtest.Name(device.Name).Address == node.GPUs[1].Address {
			want = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		require.Same(t, "taints of "+device.Name, want, device.Taints)
	}
}

// A slice has as many devices or counter sets as the API admits, and all devices of a GPU.
func TestDevicesFillAsFewSlicesAsTheAPIAdmits(t *testing.T) {
	parts := func(n int) gpu.Node {
		node := first(t, 1, "dgx-h100")
		for i := 1; i < n; i++ {
			g := node.GPUs[0]
			g.Address.Bus = uint8(0x20 + i)
			node.GPUs = append(node.GPUs, g)
		}
		return node
	}
	huge := parts(3)
	for i := range huge.GPUs {
		info := huge.GPUs[i].MIG.Profiles[0]
		info.Placements, info.MaxInstances = nil, 70
		for start := range 70 {
			info.Placements = append(info.Placements, gpu.Placement{Start: start, Size: 1})
		}
		huge.GPUs[i].MIG.Profiles = []gpu.ProfileInfo{info}
	}
	mig := cutting(catalog.MIGProfiles{})
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		want    string // devices or counter sets of each slice
	}{
		"no GPU":                                {sharing(), h100(t, 0), "0"},
		"64 GPUs":                               {sharing(), h100(t, 64), "64"},
		"130 GPUs":                              {sharing(), h100(t, 130), "64 64 2"},
		"64 GPUs and the monitor device":        {watched(sharing()), h100(t, 64), "64 1"},
		"63 GPUs and the monitor device":        {watched(sharing()), h100(t, 63), "64"},
		"32 GPUs in time slices":                {slicing(sharing()), h100(t, 32), "64 8c 8c 8c 8c"},
		"33 GPUs in time slices":                {slicing(sharing()), h100(t, 33), "64 2 8c 8c 8c 8c 1c"},
		"8 GPUs with MIG":                       {mig, parts(8), "56 56 8c"},
		"17 GPUs with MIG":                      {mig, parts(17), "56 56 56 56 14 8c 8c 1c"},
		"GPUs of more than 64 devices with MIG": {mig, huge, "64 7 64 7 64 7 3c"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, slice := range catalog.New(tc.catalog).Resources(tc.node, nil).Pools["node-1"].Slices {
				if len(slice.SharedCounters) > 0 {
					got = append(got, fmt.Sprintf("%dc", len(slice.SharedCounters)))
				} else {
					got = append(got, fmt.Sprint(len(slice.Devices)))
				}
			}
			require.Same(t, "slices", tc.want, strings.Join(got, " "))
		})
	}
}

// The attributes of a device by its name are those that are published on request.
func TestAttributesByName(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	c := watched(seating(slicing(listed(t, "3g.40gb"))))
	all := detailed(c)
	all.MIG.AllAttributes = true
	for _, device := range devices(t, all, node, nil) {
		got := catalog.New(c).Attributes(node, kindtest.Name(device.Name))
		for name, value := range device.Attributes {
			require.Same(t, fmt.Sprintf("attribute %s of %s", name, device.Name), value, got[name])
		}
	}
}

func TestAGPUInMIGModeIsNotAllocatedAsAWhole(t *testing.T) {
	node := h100(t, 1)
	node.GPUs[0].MIG.Enabled = true
	device := devices(t, detailed(sharing()), node, nil)[0]
	want := []resourceapi.DeviceTaint{{Key: "gpu.nvidia.com/mig-mode", Value: "enabled", Effect: "NoSchedule"}}
	require.Same(t, "taints", want, device.Taints)
	if mode := *device.Attributes["migMode"].StringValue; mode != "Enabled" {
		t.Errorf("migMode is %q", mode)
	}
}

// Containers have all attributes, and the parts of the machine near their GPUs.
func TestAttributesOfContainers(t *testing.T) {
	node := simulated(t, "dgx-h100")
	for i, device := range devices(t, detailed(sharing()), node, nil) {
		got := catalog.New(sharing()).Attributes(node, kind.Name{Kind: kind.GPU, Address: node.GPUs[i].Address})
		for name, value := range device.Attributes {
			require.Same(t, fmt.Sprintf("attribute %s of %s", name, device.Name), value, got[name])
			delete(got, name)
		}
		want := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"cpus":        {StringValue: ptr([]string{"0-55,112-167", "56-111,168-223"}[i/4])},
			"nics":        {StringValues: []string{"0000:" + []string{"18", "40", "4f", "5e", "9a", "c0", "ce", "dc"}[i] + ":00.0"}},
			"rdmaDevices": {StringValues: []string{"mlx5_" + []string{"0", "3", "4", "5", "6", "9", "10", "11"}[i]}},
		}
		require.Same(t, "further attributes of "+device.Name, want, got)
	}
	if got := catalog.New(detailed(sharing())).Attributes(node, kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Bus: 0xff}}); got != nil {
		t.Errorf("a GPU that is not there has attributes: %v", got)
	}
}
