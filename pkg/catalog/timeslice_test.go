// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestOfferedTimeSlices(t *testing.T) {
	timeSlicesOnly := catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: "timeslice"}}
	exclusive := slicing(sharing())
	exclusive.Exclusive = true
	lastOne := slicing(listed(t, "3g.40gb"))
	lastOne.MIG.GPUs = 1
	static := slicing(cutting(catalog.MIGProfiles{}))
	static.MIG.Static = true
	mode := func(m gpu.ComputeMode) gpu.Node {
		node := first(t, 2, "dgx-h100")
		node.GPUs[0].ComputeMode = m
		return node
	}
	cut := first(t, 1, "dgx-h100")
	cut.GPUs[0].MIG.Enabled = true
	made := first(t, 1, "dgx-h100")
	made.GPUs[0].MIG.Enabled = true
	made.GPUs[0].MIG.Partitions = []gpu.Partition{partition(t, made.GPUs[0], "3g.40gb", 4, 1)}
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		held    catalog.Held
		want    string
	}{
		"whole GPUs from the first on, turns from the last": {
			catalog: slicing(sharing()), node: h100(t, 3),
			want: "1b-00 43-00 52-00 52-00-ts 43-00-ts 1b-00-ts\n{1b-00 1} {43-00 1} {52-00 1}",
		},
		"without shares": {catalog: timeSlicesOnly, node: h100(t, 1), want: "1b-00 1b-00-ts\n{1b-00 1}"},
		"on the counters of MIG where there are any": {
			catalog: slicing(listed(t, "1g.10gb,3g.40gb")), node: first(t, 1, "dgx-h100"),
			want: "1b-00 1b-00-ts 1b-00-mig-1g-10gb-0 1b-00-mig-1g-10gb-1 1b-00-mig-1g-10gb-2 1b-00-mig-1g-10gb-3 1b-00-mig-1g-10gb-4 1b-00-mig-1g-10gb-5 1b-00-mig-1g-10gb-6" +
				" 1b-00-mig-3g-40gb-0 1b-00-mig-3g-40gb-4\n{1b-00 2}",
		},
		"MIG on one GPU of two": {
			catalog: lastOne, node: first(t, 2, "dgx-h100"),
			want: "1b-00 43-00 43-00-ts 1b-00-ts 43-00-mig-3g-40gb-0 43-00-mig-3g-40gb-4\n{1b-00 1} {43-00 1}",
		},
		"a GPU in MIG mode of an administrator's takes no turns": {
			catalog: slicing(listed(t, "7g.80gb")), node: cut,
			want: "1b-00!mig-mode 1b-00-ts!mig-mode 1b-00-mig-7g-80gb-0\n{1b-00 1}",
		},
		"with MIG devices of an administrator": {
			catalog: static, node: made,
			want: "1b-00!mig-mode 1b-00-ts!mig-mode 1b-00-mig-3g-40gb-4\n{1b-00 1}",
		},
		"without consumable capacity there are none": {
			catalog: exclusive, node: h100(t, 2), want: "1b-00 43-00",
		},
		"what a claim holds stays when turns are no longer offered": {
			catalog: sharing(), node: h100(t, 2), held: catalog.Held{kindtest.Name("gpu-43-00-ts"): true},
			want: "1b-00 43-00 43-00-ts!withdrawn\n{43-00 1}",
		},
		"an exclusive mode admits no second process": {
			catalog: slicing(sharing()), node: mode(gpu.ComputeModeExclusiveProcess),
			want: "1b-00 43-00 43-00-ts 1b-00-ts!compute-mode\n{1b-00 1} {43-00 1}",
		},
		"a prohibited GPU runs nothing": {
			catalog: slicing(listed(t, "3g.40gb")), node: mode(gpu.ComputeModeProhibited),
			want: "1b-00!compute-mode 43-00 43-00-ts 1b-00-ts!compute-mode" +
				" 43-00-mig-3g-40gb-0 43-00-mig-3g-40gb-4 1b-00-mig-3g-40gb-0!compute-mode 1b-00-mig-3g-40gb-4!compute-mode\n{1b-00 1} {43-00 1}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "slices", tc.want, inSlices(tc.catalog, tc.node, tc.held))
		})
	}
}

func TestTimeSlicesTakeAllCountersOfTheGPU(t *testing.T) {
	for name, c := range map[string]catalog.Inputs{"alone": slicing(sharing()), "with MIG": slicing(cutting(catalog.MIGProfiles{All: true}))} {
		t.Run(name, func(t *testing.T) {
			taken := map[string][]resourceapi.DeviceCounterConsumption{}
			var totals []resourceapi.CounterSet
			for _, slice := range catalog.New(c).Resources(first(t, 1, "dgx-h100"), nil).Pools["node-1"].Slices {
				totals = append(totals, slice.SharedCounters...)
				for _, device := range slice.Devices {
					taken[device.Name] = device.ConsumesCounters
				}
			}
			want := []resourceapi.DeviceCounterConsumption{{CounterSet: totals[0].Name, Counters: totals[0].Counters}}
			for _, device := range []string{"gpu-1b-00", "gpu-1b-00-ts"} {
				require.Same(t, device+" takes", want, taken[device])
			}
		})
	}
}

func TestComputeModesTaintUsesThatTheyExclude(t *testing.T) {
	unheld := slicing(sharing())
	unheld.Shares.MPS = false
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		mode    gpu.ComputeMode
		want    []string // told of the GPU
	}{
		"nothing":                   {slicing(sharing()), gpu.ComputeModeDefault, nil},
		"everything":                {sharing(), gpu.ComputeModeProhibited, []string{"not supported: the compute mode of the GPU is Prohibited, in which no process can use it; "}},
		"shares have MPS":           {sharing(), gpu.ComputeModeExclusiveProcess, nil},
		"turns":                     {slicing(sharing()), gpu.ComputeModeExclusiveProcess, []string{"not supported: the compute mode of the GPU is ExclusiveProcess, in which it is used by one process at a time, and several cannot share it by time slices; "}},
		"shares without MPS, turns": {unheld, gpu.ComputeModeExclusiveProcess, []string{"not supported: the compute mode of the GPU is ExclusiveProcess, in which it is used by one process at a time, and several cannot share it without MPS; ", "not supported: the compute mode of the GPU is ExclusiveProcess, in which it is used by one process at a time, and several cannot share it by time slices; "}},
	} {
		t.Run(name, func(t *testing.T) {
			node := h100(t, 1)
			node.GPUs[0].ComputeMode = tc.mode
			got := catalog.New(tc.catalog).Withheld(node)
			if len(got) != len(tc.want) {
				t.Fatalf("told %q, want %q", got, tc.want)
			}
			for i, why := range tc.want {
				if !strings.HasPrefix(got[i], "GPU at 0000:1b:00.0: "+why) || !strings.Contains(got[i], "an administrator changes it with nvidia-smi -i 0000:1b:00.0 -c DEFAULT") {
					t.Errorf("told %q, want %q and what to do", got[i], why)
				}
			}
		})
	}
}

func TestTheSchedulerAllocatesSharesAndTimeSlices(t *testing.T) {
	generous := sharing()
	generous.Shares = catalog.ShareOffer{MPS: true, ComputeOvercommit: 1.5, Smallest: 1 << 30}
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		claims  []string
		want    string
	}{
		"four slots on one GPU, and the fifth waits": {
			slicing(sharing()), h100(t, 1), slices.Repeat([]string{"class=timeslice"}, 5),
			"a 1b-00-ts 0 1\nb 1b-00-ts 0 1\nc 1b-00-ts 0 1\nd 1b-00-ts 0 1\ne does not fit",
		},
		"turns fill the last GPU before they begin another": {
			slicing(sharing()), h100(t, 3), []string{"class=timeslice slots=2", "class=timeslice slots=3", "class=timeslice slots=2", "", "memory=1Gi", "class=timeslice slots=5"},
			"a 52-00-ts 0 2\nb 43-00-ts 0 3\nc 52-00-ts 0 2\nd 1b-00 81559Mi\ne does not fit\nf does not fit",
		},
		"a time-sliced GPU is neither whole nor shared": {
			slicing(sharing()), h100(t, 1), []string{"class=timeslice", "", "memory=1Gi", "class=timeslice"},
			"a 1b-00-ts 0 1\nb does not fit\nc does not fit\nd 1b-00-ts 0 1",
		},
		"a shared GPU takes no turns": {
			slicing(sharing()), h100(t, 1), []string{"memory=2Gi", "class=timeslice", "memory=2Gi", ""},
			"a 1b-00 2Gi\nb does not fit\nc 1b-00 2Gi\nd does not fit",
		},
		"a cut GPU takes no turns": {
			slicing(cutting(catalog.MIGProfiles{})), first(t, 1, "dgx-h100"), []string{"class=mig profile=1g.10gb", "class=timeslice", "class=mig profile=3g.40gb memory=10Gi"},
			"a 1b-00-mig-1g-10gb-0 9984Mi\nb does not fit\nc 1b-00-mig-3g-40gb-4 10Gi",
		},
		"a time-sliced GPU is not cut": {
			slicing(cutting(catalog.MIGProfiles{})), first(t, 1, "dgx-h100"), []string{"class=timeslice", "class=mig profile=1g.10gb"},
			"a 1b-00-ts 0 1\nb does not fit",
		},
		"shares of a MIG device fill it before another is made": {
			cutting(catalog.MIGProfiles{}), first(t, 1, "dgx-h100"),
			[]string{"class=mig profile=3g.40gb memory=20Gi", "class=mig profile=3g.40gb memory=19Gi", "class=mig profile=3g.40gb memory=1Gi", "class=mig profile=3g.40gb", "class=mig profile=1g.10gb"},
			"a 1b-00-mig-3g-40gb-0 20Gi\nb 1b-00-mig-3g-40gb-0 19Gi\nc 1b-00-mig-3g-40gb-4 1Gi\nd does not fit\ne does not fit",
		},
		"a MIG device has no compute to request": {
			cutting(catalog.MIGProfiles{}), first(t, 1, "dgx-h100"), []string{"class=mig memory=1Gi compute=10"}, "a does not fit",
		},
		"MPS shares, as the class names them": {
			sharing(), h100(t, 2), []string{"class=mps memory=20Gi compute=25", "class=mps memory=20Gi compute=25", "class=mps memory=40Gi compute=50", "class=mps memory=20Gi compute=25"},
			"a 1b-00 20Gi\nb 1b-00 20Gi\nc 43-00 40Gi\nd 1b-00 20Gi",
		},
		"memory of time slices is counted for claims that name it": {
			slicing(sharing()), h100(t, 1), []string{"class=timeslice memory=40Gi", "class=timeslice", "class=timeslice memory=40Gi", "class=timeslice memory=100Mi"},
			"a 1b-00-ts 40Gi 1\nb 1b-00-ts 0 1\nc does not fit\nd 1b-00-ts 100Mi 1",
		},
		"compute is promised one and a half times, and each share has a smallest size": {
			generous, h100(t, 1), []string{"memory=1Mi compute=100", "memory=2Gi compute=51", "memory=1701Mi compute=50", "memory=1Gi compute=101"},
			"a 1b-00 1699Mi\nb does not fit\nc 1b-00 1701Mi\nd does not fit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var claims []resourceapi.DeviceClaim
			for _, words := range tc.claims {
				claims = append(claims, claim(words))
			}
			require.Same(t, "allocations", tc.want, allocateAll(t, schedulable(t, tc.catalog, tc.node, nil), claims))
		})
	}
}
