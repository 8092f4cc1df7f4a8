// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
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

// render returns the attributes and capacities of a device, one per line.
func render(device resourceapi.Device) string {
	var lines []string
	for name, a := range device.Attributes {
		switch {
		case a.StringValue != nil:
			lines = append(lines, fmt.Sprintf("%s: %q", name, *a.StringValue))
		case a.VersionValue != nil:
			lines = append(lines, fmt.Sprintf("%s: v%s", name, *a.VersionValue))
		case a.IntValue != nil:
			lines = append(lines, fmt.Sprintf("%s: %d", name, *a.IntValue))
		case a.BoolValue != nil:
			lines = append(lines, fmt.Sprintf("%s: %v", name, *a.BoolValue))
		default:
			lines = append(lines, fmt.Sprintf("%s: %q", name, a.StringValues))
		}
	}
	slices.Sort(lines)
	for _, name := range slices.Sorted(maps.Keys(device.Capacity)) {
		c := device.Capacity[name]
		line := fmt.Sprintf("%s = %s", name, c.Value.String())
		if p := c.RequestPolicy; p != nil {
			line += fmt.Sprintf(", default %s", p.Default)
			for _, value := range p.ValidValues {
				line += fmt.Sprintf(", want %s", &value)
			}
			if p.ValidRange == nil {
				lines = append(lines, line)
				continue
			}
			line += fmt.Sprintf(", from %s", p.ValidRange.Min)
			if p.ValidRange.Max != nil {
				line += fmt.Sprintf(" to %s", p.ValidRange.Max)
			}
			if p.ValidRange.Step != nil {
				line += fmt.Sprintf(" by %s", p.ValidRange.Step)
			}
		}
		lines = append(lines, line)
	}
	if device.AllowMultipleAllocations != nil {
		lines = append(lines, fmt.Sprintf("shareable %v", *device.AllowMultipleAllocations))
	}
	for _, taint := range device.Taints {
		lines = append(lines, fmt.Sprintf("taint %s=%s:%s", taint.Key, taint.Value, taint.Effect))
	}
	return strings.Join(append(lines, ""), "\n")
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

func TestAnH100IsPublishedWithAllThatIsKnown(t *testing.T) {
	node := h100(t, 8)
	node.GPUs[0].Fabric = &gpu.Fabric{ClusterUUID: "6f1c2f5e-8a4b-4c6e-9f0e-2f4a6b8c0d1e", CliqueID: 7}
	node.GPUs[0].PCIeSwitch = "0000:16:00.0"
	want := `addressingMode: "None"
architecture: "Hopper"
brand: "Nvidia"
computeEnforcement: "cooperative"
cudaComputeCapability: v9.0.0
cudaDriverVersion: v12.8.0
driverVersion: v570.86.15
eccEnabled: true
enforcement: "cooperative"
fabricCliqueID: 7
fabricClusterUUID: "6f1c2f5e-8a4b-4c6e-9f0e-2f4a6b8c0d1e"
memoryEnforcement: "cooperative"
migCapable: true
migMode: "Disabled"
multiprocessors: 132
nvlinkDomain: "1b-00"
nvlinkLinks: 18
nvlinkPeers: "43-00,52-00,61-00,9d-00,c3-00,d1-00,df-00"
nvlinkSwitch: true
pcieSwitch: "0000:16:00.0"
persistenceMode: true
productName: "NVIDIA H100 80GB HBM3"
resource.kubernetes.io/numaNode: 0
resource.kubernetes.io/pciBusID: "0000:1b:00.0"
resource.kubernetes.io/pcieRoot: "pci0000:18"
sharing: "mps"
type: "gpu"
uuid: "GPU-00000000-0000-4000-8000-000000000000"
compute = 100, default 0, from 0
memory = 81559Mi, default 81559Mi, from 1699Mi by 1Mi
shareable true
`
	if diff := cmp.Diff(want, render(devices(t, detailed(sharing()), node, nil)[0])); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

func TestUnknownValuesAreNotPublished(t *testing.T) {
	node := gpu.Node{GPUs: []gpu.GPU{{Address: gpu.PCIAddress{Bus: 0x1b}}}}
	want := `computeEnforcement: "none"
enforcement: "none"
memoryEnforcement: "none"
migCapable: false
resource.kubernetes.io/pciBusID: "0000:1b:00.0"
sharing: "none"
type: "gpu"
compute = 100
memory = 0
`
	if diff := cmp.Diff(want, render(devices(t, detailed(sharing()), node, nil)[0])); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

func TestWithoutConsumableCapacityGPUsAreExclusive(t *testing.T) {
	exclusive := sharing()
	exclusive.Exclusive = true
	for name, c := range map[string]catalog.Inputs{
		"in a cluster without consumable capacity": exclusive,
		"on a node that does not offer shares":     {Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			device := devices(t, c, h100(t, 1), nil)[0]
			if device.AllowMultipleAllocations != nil {
				t.Error("the device allows multiple allocations")
			}
			for name, capacity := range device.Capacity {
				if capacity.RequestPolicy != nil {
					t.Errorf("capacity %s has a request policy", name)
				}
			}
			if memory := device.Capacity[v1alpha1.CapacityMemory].Value; memory.String() != "81559Mi" {
				t.Errorf("memory is %s", memory.String())
			}
		})
	}
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
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestDevicesFillAsFewSlicesAsTaintsAllow(t *testing.T) {
	for _, tc := range []struct {
		gpus int
		want []int
	}{
		{0, []int{0}}, {1, []int{1}}, {8, []int{8}}, {16, []int{16}}, {64, []int{64}}, {65, []int{64, 1}}, {130, []int{64, 64, 2}},
	} {
		t.Run(fmt.Sprint(tc.gpus), func(t *testing.T) {
			var sizes []int
			for _, slice := range catalog.New(sharing()).Resources(h100(t, tc.gpus), nil).Pools["node-1"].Slices {
				sizes = append(sizes, len(slice.Devices))
			}
			if diff := cmp.Diff(tc.want, sizes); diff != "" {
				t.Errorf("devices per slice (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUnhealthyGPUKeepsItsPlaceAndGetsATaint(t *testing.T) {
	node := h100(t, 8)
	healthy := devices(t, sharing(), node, nil)
	sick := devices(t, sharing(), node, catalog.Conditions{node.GPUs[2].Address: {Cause: "xid-79"}})
	for i := range healthy {
		want := healthy[i]
		if i == 2 {
			want.Taints = []resourceapi.DeviceTaint{{Key: "gpu.nvidia.com/unhealthy", Value: "xid-79", Effect: "NoSchedule"}}
		}
		if diff := cmp.Diff(want, sick[i]); diff != "" {
			t.Errorf("device %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestAGPUInMIGModeIsNotAllocatedAsAWhole(t *testing.T) {
	node := h100(t, 1)
	node.GPUs[0].MIG.Enabled = true
	device := devices(t, detailed(sharing()), node, nil)[0]
	want := []resourceapi.DeviceTaint{{Key: "gpu.nvidia.com/mig-mode", Value: "enabled", Effect: "NoSchedule"}}
	if diff := cmp.Diff(want, device.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
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
			if diff := cmp.Diff(value, got[name]); diff != "" {
				t.Errorf("attribute %s of %s (-want +got):\n%s", name, device.Name, diff)
			}
			delete(got, name)
		}
		want := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"cpus":        {StringValue: ptr([]string{"0-55,112-167", "56-111,168-223"}[i/4])},
			"nics":        {StringValues: []string{"0000:" + []string{"18", "40", "4f", "5e", "9a", "c0", "ce", "dc"}[i] + ":00.0"}},
			"rdmaDevices": {StringValues: []string{"mlx5_" + []string{"0", "3", "4", "5", "6", "9", "10", "11"}[i]}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("further attributes of %s (-want +got):\n%s", device.Name, diff)
		}
	}
	if got := catalog.New(detailed(sharing())).Attributes(node, kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Bus: 0xff}}); got != nil {
		t.Errorf("a GPU that is not there has attributes: %v", got)
	}
}
