// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// layout returns the published slices of a node, one per line: counter sets, and
// devices without "gpu-" and with their taints.
func layout(c catalog.Inputs, node gpu.Node, held catalog.Held) string {
	var lines []string
	for _, slice := range catalog.New(c).Resources(node, held).Pools[c.Pool].Slices {
		var words []string
		for _, set := range slice.SharedCounters {
			words = append(words, fmt.Sprintf("{%s %d}", set.Name, len(set.Counters)))
		}
		for _, device := range slice.Devices {
			word := strings.TrimPrefix(device.Name, "gpu-")
			for _, taint := range device.Taints {
				word += "!" + strings.TrimPrefix(taint.Key, "gpu.nvidia.com/")
			}
			words = append(words, word)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// first keeps the first GPUs of a simulated node.
func first(t *testing.T, n int, model string) gpu.Node {
	node := simulated(t, model)
	node.GPUs = node.GPUs[:n]
	return node
}

func listed(t *testing.T, profiles string) catalog.Inputs {
	t.Helper()
	p, err := catalog.ParseMIGProfiles(profiles)
	if err != nil {
		t.Fatal(err)
	}
	return cutting(p)
}

func partition(t *testing.T, g gpu.GPU, profile string, start, id int) gpu.Partition {
	t.Helper()
	p, err := gpu.ParseProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range g.MIG.Profiles {
		if info.Profile == p {
			return gpu.Partition{Profile: p, Placement: gpu.Placement{Start: start, Size: info.Placements[0].Size}, UUID: fmt.Sprintf("MIG-%d", id), GPUInstanceID: id}
		}
	}
	t.Fatalf("no profile %s", profile)
	return gpu.Partition{}
}

func TestOfferedMIGDevices(t *testing.T) {
	h100s := first(t, 2, "dgx-h100")
	ampere := first(t, 2, "dgx-a100")
	on := first(t, 2, "dgx-a100")
	on.GPUs[1].MIG.Enabled = true
	silent := first(t, 1, "dgx-h100")
	silent.GPUs[0].MIG.Profiles = nil
	occupied := first(t, 1, "dgx-h100")
	occupied.GPUs[0].MIG.Enabled = true
	occupied.GPUs[0].MIG.Partitions = []gpu.Partition{partition(t, occupied.GPUs[0], "3g.40gb", 0, 1)}
	media := first(t, 1, "dgx-h100")
	media.GPUs[0].MIG.Enabled = true
	media.GPUs[0].MIG.Partitions = []gpu.Partition{partition(t, media.GPUs[0], "1g.10gb+me", 0, 1)}

	lastOne := listed(t, "3g.40gb")
	lastOne.MIG.GPUs = 1
	noReset := listed(t, "3g.40gb")
	noReset.MIG.AllowReset = false
	shareOnly := sharing()
	shareOnly.MIG = lastOne.MIG

	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		held    catalog.Held
		want    string
	}{
		"the common profiles of an H100": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 1, "dgx-h100"),
			want: "1b-00 1b-00-mig-1g-10gb-0 1b-00-mig-1g-10gb-1 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-1g-10gb-4 1b-00-mig-1g-10gb-5 1b-00-mig-1g-10gb-6" +
				" 1b-00-mig-2g-20gb-0 1b-00-mig-2g-20gb-2 1b-00-mig-2g-20gb-4 1b-00-mig-3g-40gb-0 1b-00-mig-3g-40gb-4 1b-00-mig-7g-80gb-0\n{1b-00 4}",
		},
		"the common profiles of an A30": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 1, "a30-bridge"),
			want: "17-00 17-00-mig-1g-6gb-0 17-00-mig-1g-6gb-1 17-00-mig-1g-6gb-2 17-00-mig-1g-6gb-3 17-00-mig-2g-12gb-0 17-00-mig-2g-12gb-2 17-00-mig-4g-24gb-0\n{17-00 2}",
		},
		"whole GPUs come first, and parts from the last GPU on": {
			catalog: listed(t, "3g.40gb"), node: h100s,
			want: "1b-00 43-00 43-00-mig-3g-40gb-0 43-00-mig-3g-40gb-4 1b-00-mig-3g-40gb-0 1b-00-mig-3g-40gb-4\n{1b-00 1} {43-00 1}",
		},
		"a number of GPUs is the last ones": {
			catalog: lastOne, node: h100s,
			want: "1b-00 43-00 43-00-mig-3g-40gb-0 43-00-mig-3g-40gb-4\n{43-00 1}",
		},
		"no MIG is offered": {
			catalog: shareOnly, node: h100s, want: "1b-00 43-00",
		},
		"a profile that the GPU does not have": {
			catalog: listed(t, "1g.6gb"), node: h100s, want: "1b-00 43-00",
		},
		"a GPU without MIG": {
			catalog: cutting(catalog.MIGProfiles{}), node: first(t, 1, "t4"), want: "18-00",
		},
		"a driver that lists no profiles while MIG is off": {
			catalog: cutting(catalog.MIGProfiles{}), node: silent, want: "1b-00",
		},
		"Ampere needs a reset that is not allowed": {
			catalog: noReset, node: ampere, want: "07-00 0f-00",
		},
		"Ampere may be reset": {
			catalog: listed(t, "3g.40gb"), node: first(t, 1, "dgx-a100"), want: "07-00 07-00-mig-3g-40gb-0 07-00-mig-3g-40gb-4\n{07-00 1}",
		},
		"Ampere whose MIG mode is on already": {
			catalog: noReset, node: on, want: "07-00 0f-00!mig-mode 0f-00-mig-3g-40gb-0 0f-00-mig-3g-40gb-4\n{0f-00 1}",
		},
		"with a partition of another owner": {
			catalog: listed(t, "1g.10gb,2g.20gb,7g.80gb"), node: occupied,
			want: "1b-00!mig-mode 1b-00-mig-1g-10gb-4 1b-00-mig-1g-10gb-5 1b-00-mig-1g-10gb-6 1b-00-mig-2g-20gb-4\n{1b-00 2}",
		},
		"another owner has the media engine": {
			catalog: listed(t, "1g.10gb+me,3g.40gb"), node: media,
			want: "1b-00!mig-mode 1b-00-mig-3g-40gb-4\n{1b-00 1}",
		},
		"a held device stays when MIG is no longer offered": {
			catalog: shareOnly, node: h100s, held: catalog.Held{kindtest.Name("gpu-43-00-mig-2g-20gb-2"): false, kindtest.Name("gpu-99-00-mig-2g-20gb-2"): false},
			want: "1b-00 43-00 43-00-mig-2g-20gb-2!withdrawn\n{43-00 1}",
		},
		"a held device stays with the devices that are offered instead": {
			catalog: lastOne, node: h100s, held: catalog.Held{kindtest.Name("gpu-43-00-mig-1g-10gb-0"): false, kindtest.Name("gpu-43-00-mig-3g-40gb-4"): false},
			want: "1b-00 43-00 43-00-mig-3g-40gb-0 43-00-mig-3g-40gb-4 43-00-mig-1g-10gb-0!withdrawn\n{43-00 2}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, layout(tc.catalog, tc.node, tc.held)); diff != "" {
				t.Errorf("slices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhyMIGIsNotOffered(t *testing.T) {
	node := gpu.Node{GPUs: append(first(t, 1, "t4").GPUs, first(t, 1, "dgx-a100").GPUs...)}
	c := listed(t, "1g.20gb")
	c.MIG.AllowReset = false
	want := []string{
		"GPU at 0000:18:00.0: it has no MIG",
		"GPU at 0000:07:00.0: its MIG mode changes with a reset only; switch it on with nvidia-smi -mig 1, or allow resets with --mig-allow-reset",
	}
	if diff := cmp.Diff(want, catalog.New(c).Withheld(node)); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	c.Offer = "share"
	if reasons := catalog.New(c).Withheld(node); reasons != nil {
		t.Errorf("a node that offers no MIG has reasons: %q", reasons)
	}
}

func TestStaticMIGIsWhatAnAdministratorMade(t *testing.T) {
	c := cutting(catalog.MIGProfiles{})
	c.MIG.Static = true
	node := first(t, 2, "dgx-h100")
	g := &node.GPUs[0]
	g.MIG.Enabled = true
	g.MIG.Partitions = []gpu.Partition{partition(t, *g, "1g.10gb", 0, 7), partition(t, *g, "1g.20gb", 2, 8), partition(t, *g, "3g.40gb", 4, 9), partition(t, *g, "3g.40gb", 4, 9), partition(t, *g, "1g.10gb+me", 1, 10)}
	g.MIG.Partitions[4].UUID = "" // no compute instance yet
	if diff := cmp.Diff("1b-00!mig-mode 43-00 1b-00-mig-1g-10gb-0 1b-00-mig-1g-20gb-2", layout(c, node, nil)); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
	want := `parentUUID: "` + g.UUID + `"
productName: "NVIDIA H100 80GB HBM3"
profile: "1g.10gb"
resource.kubernetes.io/numaNode: 0
resource.kubernetes.io/pcieRoot: "pci0000:15"
type: "mig"
uuid: "MIG-7"
memory = 9984Mi
shareable true
`
	if diff := cmp.Diff(want, render(devices(t, c, node, nil)[2])); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	few := `parentUUID: "` + g.UUID + `"
profile: "1g.10gb"
resource.kubernetes.io/numaNode: 0
type: "mig"
uuid: "MIG-7"
memory = 9984Mi
shareable true
`
	if diff := cmp.Diff(few, render(devices(t, lean(c), node, nil)[2])); diff != "" {
		t.Errorf("device of a lean node (-want +got):\n%s", diff)
	}
}

// A selector on an attribute that the pages recommend must not end the scheduling of a pod.
func TestEveryGPUHasTheAttributesOfTheCard(t *testing.T) {
	for _, model := range nvmlsim.ModelNames() {
		for _, d := range devices(t, sharing(), simulated(t, model), nil) {
			for _, name := range []resourceapi.QualifiedName{"migCapable", "resource.kubernetes.io/numaNode", "nvlinkPeers"} {
				if _, has := d.Attributes[name]; !has {
					t.Errorf("%s: %s has no %s", model, d.Name, name)
				}
			}
			if _, has := d.Capacity["memory"]; !has {
				t.Errorf("%s: %s has no memory", model, d.Name)
			}
		}
	}
}

// A selector on a GPU's product or place must not end the scheduling of a pod. It
// would if it failed on a MIG device without them.
func TestMIGDevicesOfALayoutHaveTheProductAndThePlaceOfTheirGPU(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		want    bool
	}{
		"a layout":      {layered(t, sharing(), node, "all 3g.40gb*2"), true},
		"a lean layout": {layered(t, lean(sharing()), node, "all 3g.40gb*2"), false},
		"MIG on demand": {listed(t, "3g.40gb"), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, d := range devices(t, tc.catalog, node, nil) {
				for _, name := range []resourceapi.QualifiedName{"productName", "resource.kubernetes.io/pcieRoot"} {
					if _, has := d.Attributes[name]; has != tc.want && *d.Attributes["type"].StringValue == "mig" {
						t.Errorf("%s has %s: %t, want %t", d.Name, name, has, tc.want)
					}
				}
			}
		})
	}
}

func TestAMIGDeviceCarriesLittle(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	few := fmt.Sprintf(`parentUUID: "%s"
profile: "3g.40gb"
resource.kubernetes.io/numaNode: 0
type: "mig"
memory = 40448Mi
shareable true
`, node.GPUs[0].UUID)
	all := fmt.Sprintf(`enforcement: "cooperative"
memoryEnforcement: "cooperative"
parentUUID: "%s"
productName: "NVIDIA H100 80GB HBM3"
profile: "3g.40gb"
resource.kubernetes.io/numaNode: 0
resource.kubernetes.io/pcieRoot: "pci0000:15"
sharing: "mps"
type: "mig"
memory = 40448Mi
shareable true
`, node.GPUs[0].UUID)
	c := listed(t, "3g.40gb")
	if diff := cmp.Diff(few, render(devices(t, c, node, nil)[1])); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	c.MIG.AllAttributes = true
	if diff := cmp.Diff(all, render(devices(t, c, node, nil)[1])); diff != "" {
		t.Errorf("device with all attributes (-want +got):\n%s", diff)
	}
	name, _ := kind.Parse("gpu-1b-00-mig-3g-40gb-4")
	c.MIG.AllAttributes = false
	if len(catalog.New(c).Attributes(node, name)) != 10+len([]string{"cpus", "nics", "rdmaDevices"}) {
		t.Errorf("attributes of %s: %v", name, catalog.New(c).Attributes(node, name))
	}
}

// A partitioned GPU is published in the same way while claims start and end. They
// change its MIG mode.
func TestAGPUThatIsCutDoesNotTellItsMIGMode(t *testing.T) {
	node := first(t, 1, "dgx-h100")
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		held    catalog.Held
		told    bool
	}{
		"not offered":          {sharing(), nil, true},
		"offered":              {listed(t, "3g.40gb"), nil, false},
		"held although it was": {sharing(), catalog.Held{kindtest.Name("gpu-1b-00-mig-3g-40gb-0"): false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			whole := catalog.New(detailed(tc.catalog)).Resources(node, tc.held).Pools["node-1"].Slices[0].Devices[0]
			if _, told := whole.Attributes["migMode"]; told != tc.told {
				t.Errorf("migMode is published: %v", told)
			}
		})
	}
}

func TestASharedGPUStaysShareableWhileItIsHeld(t *testing.T) {
	c := catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: ""}}
	resources := catalog.New(c).Resources(h100(t, 2), catalog.Held{kindtest.Name("gpu-1b-00"): true, kindtest.Name("gpu-43-00"): false})
	for i, shared := range []bool{true, false} {
		if device := resources.Pools["node-1"].Slices[0].Devices[i]; (device.AllowMultipleAllocations != nil) != shared {
			t.Errorf("%s is shareable: %v, want %v", device.Name, !shared, shared)
		}
	}
}

func TestManyGPUsAndManyParts(t *testing.T) {
	node := func(n int) gpu.Node {
		node := first(t, 1, "dgx-h100")
		for i := 1; i < n; i++ {
			g := node.GPUs[0]
			g.Address.Bus = uint8(0x20 + i)
			g.UUID = fmt.Sprintf("GPU-%d", i)
			node.GPUs = append(node.GPUs, g)
		}
		return node
	}
	huge := node(3)
	for i := range huge.GPUs {
		info := huge.GPUs[i].MIG.Profiles[0]
		info.Placements = nil
		for start := range 70 {
			info.Placements = append(info.Placements, gpu.Placement{Start: start, Size: 1})
		}
		info.MaxInstances = 70
		huge.GPUs[i].MIG.Profiles = []gpu.ProfileInfo{info}
	}
	for name, tc := range map[string]struct {
		node gpu.Node
		want string // devices or counter sets of each slice
	}{
		"8 GPUs":                       {node(8), "56 56 8c"},
		"16 GPUs":                      {node(16), "56 56 56 56 8c 8c"},
		"17 GPUs":                      {node(17), "56 56 56 56 14 8c 8c 1c"},
		"GPUs of more than 64 devices": {huge, "64 7 64 7 64 7 3c"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			seen := map[string]bool{}
			for _, slice := range catalog.New(cutting(catalog.MIGProfiles{})).Resources(tc.node, nil).Pools["node-1"].Slices {
				if len(slice.SharedCounters) > 0 {
					got = append(got, fmt.Sprintf("%dc", len(slice.SharedCounters)))
				} else {
					got = append(got, fmt.Sprint(len(slice.Devices)))
				}
				for _, device := range slice.Devices {
					if seen[device.Name] {
						t.Errorf("%s is there twice", device.Name)
					}
					seen[device.Name] = true
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("slices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnUnhealthyGPUTaintsItsParts(t *testing.T) {
	node := first(t, 2, "dgx-h100")
	for _, device := range devices(t, listed(t, "3g.40gb"), node, catalog.Conditions{node.GPUs[1].Address: {Cause: "xid-79"}}) {
		name, err := kind.Parse(device.Name)
		if err != nil {
			t.Fatal(err)
		}
		var want []resourceapi.DeviceTaint
		if name.Address == node.GPUs[1].Address {
			want = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		if diff := cmp.Diff(want, device.Taints); diff != "" {
			t.Errorf("taints of %s (-want +got):\n%s", device.Name, diff)
		}
	}
}
