// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// inSlices returns the published slices of a node, one per line: counter sets, and
// devices without "gpu-" and with their taints.
func inSlices(c catalog.Inputs, node gpu.Node, held catalog.Held) string {
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
	must(t, err)
	return cutting(p)
}

func partition(t *testing.T, g gpu.GPU, profile string, start, id int) gpu.Partition {
	t.Helper()
	p, err := gpu.ParseProfile(profile)
	must(t, err)
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
			require.Same(t, "slices", tc.want, inSlices(tc.catalog, tc.node, tc.held))
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
	require.Same(t, "reasons", want, catalog.New(c).Withheld(node))
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
	require.Same(t, "slices", "1b-00!mig-mode 43-00 1b-00-mig-1g-10gb-0 1b-00-mig-1g-20gb-2", inSlices(c, node, nil))
	want := `.allowMultipleAllocations=true
memory:9984Mi
parentUUID="` + g.UUID + `"
productName="NVIDIA H100 80GB HBM3"
profile="1g.10gb"
resource.kubernetes.io/numaNode=0
resource.kubernetes.io/pcieRoot="pci0000:15"
type="mig"
uuid="MIG-7"`
	require.Same(t, "device", want, render(devices(t, c, node, nil)[2]))
	few := strings.NewReplacer("productName=\"NVIDIA H100 80GB HBM3\"\n", "", "resource.kubernetes.io/pcieRoot=\"pci0000:15\"\n", "").Replace(want)
	require.Same(t, "device of a lean node", few, render(devices(t, lean(c), node, nil)[2]))
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
