// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// change returns a function that changes the first GPU of a world.
func change(change func(*gpu.GPU)) func(*world) {
	return func(w *world) {
		g := w.gpus[gpu.PCIAddress{}]
		change(&g)
		w.gpus[g.Address] = g
	}
}

func mode(mode gpu.ComputeMode) func(*world) {
	return change(func(g *gpu.GPU) { g.ComputeMode = mode })
}

func without(change func(*claim.Options)) func(*world) {
	return func(w *world) { w.options = change }
}

// uuidOf returns the UUID of a GPU in the form that configurations use.
func uuidOf(bus uint8) string { return fmt.Sprintf("GPU-0b9d7ad5-2e53-4b0e-8f7e-%012d", bus) }

func realUUIDs(w *world) {
	for a, g := range w.gpus {
		g.UUID = uuidOf(a.Bus)
		w.gpus[a] = g
	}
}

// mpsLimits renders memory limits of single devices. Each device precedes its limit.
func mpsLimits(all ...string) string {
	var entries []string
	for pair := range slices.Chunk(all, 2) {
		entries = append(entries, fmt.Sprintf(`{"device":%q,"memoryLimit":%q}`, pair[0], pair[1]))
	}
	return config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"perDevice":[`+strings.Join(entries, ",")+`]}}`)
}

func TestSharesThatCannotBePrepared(t *testing.T) {
	noMPS := without(func(o *claim.Options) { o.MPS = nil })
	for name, c := range map[string]struct {
		world  func(*world)
		others []*resourceapi.ResourceClaim
		pieces []piece
		is     error
		says   string
	}{
		"larger than the GPU":       {pieces: []piece{{device: "gpu-00-00", memory: "81Gi"}}, is: gpu.ErrInvalid, says: "81Gi of memory, and the device has 80Gi"},
		"of nothing":                {pieces: []piece{{device: "gpu-00-00", memory: "0"}}, is: gpu.ErrInvalid, says: "the smallest share on this node has 1Mi"},
		"negative":                  {pieces: []piece{{device: "gpu-00-00", memory: "-1Gi"}}, is: gpu.ErrInvalid, says: "the smallest share on this node has 1Mi"},
		"more seats than a GPU has": {pieces: []piece{{device: "gpu-00-00-seat", seats: 5}}, is: gpu.ErrInvalid, says: "5 seats of a GPU; want a whole number from 1 to 4"},
		"seats that others hold": {
			others: []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00-seat", seats: 3})},
			pieces: []piece{{device: "gpu-00-00-seat", seats: 2}}, is: gpu.ErrInUse, says: "40Gi of its 80Gi memory are wanted, and 60Gi are held by one other claim",
		},
		"seats of a GPU in shares": {
			others: []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00", memory: "10Gi"})},
			pieces: []piece{{device: "gpu-00-00-seat", seats: 1}}, is: gpu.ErrInUse, says: "another claim holds gpu-00-00",
		},
		"a share of a GPU in seats": {
			others: []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00-seat", seats: 1})},
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi"}}, is: gpu.ErrInUse, says: "another claim holds gpu-00-00-seat",
		},
		"seats for one request": {
			pieces: []piece{{device: "gpu-00-00-seat", seats: 1, request: "r"}, {device: "gpu-01-00-seat", seats: 1, request: "r"}}, is: gpu.ErrInvalid,
			says: "2 seats in one request, and a container can be client of one MPS daemon only; ask for one, or for more of one GPU in a claim with capacity: {requests: {seats: 2}}",
		},
		"plain seats": {
			pieces: []piece{{device: "gpu-00-00-seat", seats: 1, config: config("ShareConfig", plain)}}, is: gpu.ErrInvalid,
			says: "strategy: invalid: Plain on a seat, whose strategy is MPS",
		},
		"time slices of seats": {
			pieces: []piece{{device: "gpu-00-00-seat", seats: 1, config: interval(gpu.TimeSliceLong)}}, is: gpu.ErrInvalid,
			says: "a GpuConfig cannot configure a seat; write a ShareConfig whose strategy is MPS",
		},
		"seats without a supervisor":               {world: noMPS, pieces: []piece{{device: "gpu-00-00-seat", seats: 1}}, is: gpu.ErrNotSupported, says: "no MPS daemons run on this node"},
		"memory of time slices below the smallest": {pieces: []piece{{device: "gpu-00-00-ts", memory: "1023Mi"}}, is: gpu.ErrInvalid, says: "1023Mi of memory; the smallest share on this node has 1Gi"},
		"memory of time slices beyond the GPU":     {pieces: []piece{{device: "gpu-00-00-ts", memory: "81Gi"}}, is: gpu.ErrInvalid, says: "81Gi of memory, and the device has 80Gi"},
		"memory of time slices that others hold": {
			others: []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00-ts", memory: "50Gi"}), pieces("b", piece{device: "gpu-00-00-ts"})},
			pieces: []piece{{device: "gpu-00-00-ts", memory: "31Gi"}}, is: gpu.ErrInUse, says: "31Gi of its 80Gi memory are wanted, and 50Gi are held by one other claim",
		},
		"memory that others hold, after a time slice without": {
			others: []*resourceapi.ResourceClaim{pieces("a", piece{device: "gpu-00-00-ts", memory: "50Gi"})},
			pieces: []piece{{device: "gpu-00-00-ts"}, {device: "gpu-00-00-ts", memory: "31Gi"}}, is: gpu.ErrInUse, says: "50Gi are held by one other claim",
		},
		"time slices with more memory together than the GPU": {
			pieces: []piece{{device: "gpu-00-00-ts", memory: "50Gi"}, {device: "gpu-00-00-ts", memory: "31Gi"}}, is: gpu.ErrInvalid, says: "the claim's shares have 81Gi memory together",
		},
		"MPS of time slices with memory": {
			pieces: []piece{{device: "gpu-00-00-ts", memory: "10Gi", config: config("ShareConfig", "")}}, is: gpu.ErrInvalid, says: "a ShareConfig cannot configure time slices; write a GpuConfig whose sharing.strategy is TimeSlicing",
		},
		"off the step":          {pieces: []piece{{device: "gpu-00-00", memory: "2147483649"}}, is: gpu.ErrInvalid, says: "not a multiple of 1Mi"},
		"more compute than all": {pieces: []piece{{device: "gpu-00-00", memory: "20Gi", compute: "101"}}, is: gpu.ErrInvalid, says: "101 percent of compute; want a whole number from 0 to 100"},
		"part of a percent":     {pieces: []piece{{device: "gpu-00-00", memory: "20Gi", compute: "500m"}}, is: gpu.ErrInvalid, says: "500m percent of compute"},
		"too small for its processes": {
			world:  change(func(g *gpu.GPU) { g.MemoryBytes = 16 << 30 }),
			pieces: []piece{{device: "gpu-00-00", memory: "2Gi", config: config("ShareConfig", `"processes":6`)}}, is: gpu.ErrInvalid,
			says: "2Gi of memory for 6 processes leaves none to compute with: each needs 512Mi for its CUDA context alone; ask for 3078Mi at least",
		},
		"several for one request": {
			pieces: []piece{{device: "gpu-00-00", memory: "20Gi", request: "r"}, {device: "gpu-01-00", memory: "20Gi", request: "r"}}, is: gpu.ErrInvalid,
			says: "2 MPS shares for one request, and a container can be client of one MPS daemon only; make a request of each",
		},
		"together more than the GPU": {
			pieces: []piece{{device: "gpu-00-00", memory: "50Gi"}, {device: "gpu-00-00", memory: "40Gi"}}, is: gpu.ErrInvalid,
			says: "the claim's shares have 90Gi memory together, and the device has 80Gi",
		},
		"with shares that leave too little": {
			others: []*resourceapi.ResourceClaim{pieces("other", piece{device: "gpu-00-00", memory: "50Gi"})},
			pieces: []piece{{device: "gpu-00-00", memory: "40Gi"}}, is: gpu.ErrInUse,
			says: "40Gi of its 80Gi memory are wanted, and 50Gi are held by one other claim",
		},
		"a share with the whole": {
			others: []*resourceapi.ResourceClaim{newClaim("other", "gpu-00-00")},
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi"}}, is: gpu.ErrInUse, says: "another claim holds gpu-00-00 (prepared)",
		},
		"the whole with a share": {
			others: []*resourceapi.ResourceClaim{pieces("other", piece{device: "gpu-00-00", memory: "10Gi"})},
			pieces: []piece{{device: "gpu-00-00"}}, is: gpu.ErrInUse, says: "holds gpu-00-00",
		},
		"a share with time slices": {
			others: []*resourceapi.ResourceClaim{pieces("other", piece{device: "gpu-00-00-ts"})},
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi"}}, is: gpu.ErrInUse, says: "holds gpu-00-00-ts",
		},
		"time slices with a share": {
			others: []*resourceapi.ResourceClaim{pieces("other", piece{device: "gpu-00-00", memory: "10Gi"})},
			pieces: []piece{{device: "gpu-00-00-ts"}}, is: gpu.ErrInUse, says: "holds gpu-00-00",
		},
		"time slices with their GPU": {pieces: []piece{{device: "gpu-00-00-ts"}, {device: "gpu-00-00"}}, is: gpu.ErrInvalid, says: "conflicts with gpu-00-00-ts"},
		"for all clients that MPS admits": {
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi", config: config("ShareConfig", `"processes":48`)}}, is: gpu.ErrInvalid,
			says: "processes: invalid: a share of 10Gi has 6 of the 48 processes that MPS admits at a time to the device with 80Gi, and the ShareConfig declares 48; declare 6 in the ShareConfig, or ask for 80Gi of memory",
		},

		"a GpuConfig for a share": {
			pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("GpuConfig", "")}}, is: gpu.ErrInvalid,
			says: "a GpuConfig cannot configure a share (20Gi of 80Gi memory); write a ShareConfig, or remove capacity",
		},
		"a MigConfig for a GPU":         {pieces: []piece{{device: "gpu-00-00", config: config("MigConfig", "")}}, is: gpu.ErrInvalid, says: "write a GpuConfig"},
		"a ShareConfig for time slices": {pieces: []piece{{device: "gpu-00-00-ts", config: config("ShareConfig", "")}}, is: gpu.ErrInvalid, says: "a ShareConfig cannot configure time slices; write a GpuConfig whose sharing.strategy is TimeSlicing"},
		"MPS for time slices":           {pieces: []piece{{device: "gpu-00-00-ts", config: config("GpuConfig", together)}}, is: gpu.ErrInvalid, says: "sharing.strategy: invalid: MPS on time slices"},
		"a share on a node without MPS": {world: noMPS, pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", "")}}, is: gpu.ErrNotSupported, says: "--mps-supervisor"},
		"processes without MPS":         {world: noMPS, pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", together)}}, is: gpu.ErrNotSupported, says: "no MPS daemons run on this node"},
		"MPS on a GPU without limits":   {world: change(func(g *gpu.GPU) { g.ComputeCapability = gpu.Version{Major: 6, Minor: 1} }), pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", "")}}, is: gpu.ErrNotSupported, says: "the GPU has compute capability 6.1, and MPS limits its clients from 7.0"},
		"MPS for users that it does not serve": {
			pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"multiUser":true}}`)}}, is: gpu.ErrNotSupported,
			says: "multiUser: not supported: MPS on this node serves one user at a time; leave it out, or ask the administrator for mps.multiUser: true in the chart's values",
		},
		"a limit above the GPU's memory": {pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"memoryLimit":"100Gi"}}`)}}, is: gpu.ErrInvalid, says: "a memory limit of 100Gi for a process, and the device has 80Gi"},
		"a limit for a third GPU":        {pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":2,"memoryLimit":"1Gi"}]}}`)}}, is: gpu.ErrInvalid, says: "sharing.mps.perDevice[0].device: invalid: 2; the request has 1 devices, counted from 0"},
		"a limit for another claim's GPU": {
			pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":"GPU-0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11","memoryLimit":"1Gi"}]}}`)}},
			is:     gpu.ErrInvalid, says: "GPU-0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11 is none of the devices that this configuration is for",
		},
		"a limit for another request's GPU": {
			world: realUUIDs, pieces: []piece{{device: "gpu-00-00", config: mpsLimits(uuidOf(1), "1Gi")}, {device: "gpu-01-00"}}, is: gpu.ErrInvalid,
			says: "sharing.mps.perDevice[0].device: invalid: " + uuidOf(1) + " is none of the devices that this configuration is for; name them by their index",
		},
		"a limit for a GPU of another configuration": {
			world: realUUIDs, is: gpu.ErrInvalid, says: uuidOf(1) + " is none of the devices that this configuration is for",
			pieces: []piece{{device: "gpu-00-00", config: mpsLimits(uuidOf(1), "1Gi")}, {device: "gpu-01-00", config: config("GpuConfig", together)}},
		},
		"two limits for one GPU": {
			world: realUUIDs, pieces: []piece{{device: "gpu-00-00", config: mpsLimits("0", "10Gi", uuidOf(0), "70Gi")}}, is: gpu.ErrInvalid,
			says: "sharing.mps.perDevice[1].device: invalid: " + uuidOf(0) + " names the device of sharing.mps.perDevice[0].device again; leave one of the two out",
		},
		"two limits for the other GPU of a request": {
			world: realUUIDs, is: gpu.ErrInvalid, says: "sharing.mps.perDevice[2].device: invalid: 1 names the device of sharing.mps.perDevice[0].device again",
			pieces: []piece{{device: "gpu-00-00", request: "r", config: mpsLimits(uuidOf(1), "10Gi", "0", "10Gi", "1", "10Gi")}, {device: "gpu-01-00", request: "r"}},
		},

		"anything on a prohibited GPU":    {world: mode(gpu.ComputeModeProhibited), pieces: []piece{{device: "gpu-00-00"}}, is: gpu.ErrNotSupported, says: "the compute mode of the GPU is Prohibited, in which no process can use it; an administrator changes it with nvidia-smi -i 0000:00:00.0 -c DEFAULT"},
		"plain on an exclusive GPU":       {world: mode(gpu.ComputeModeExclusiveProcess), pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)}}, is: gpu.ErrNotSupported, says: "in which it is used by one process at a time"},
		"time slices on an exclusive GPU": {world: mode(gpu.ComputeModeExclusiveProcess), pieces: []piece{{device: "gpu-00-00-ts"}}, is: gpu.ErrNotSupported, says: "nvidia-smi -i 0000:00:00.0 -c DEFAULT"},
		"time slices of an exclusive GPU": {world: mode(gpu.ComputeModeExclusiveProcess), pieces: []piece{{device: "gpu-00-00", config: interval(gpu.TimeSliceDefault)}}, is: gpu.ErrNotSupported, says: "ExclusiveProcess"},

		"an interval that cannot be set":    {world: without(func(o *claim.Options) { o.TimeSlicing = nil }), pieces: []piece{{device: "gpu-00-00-ts", config: interval(gpu.TimeSliceLong)}}, is: gpu.ErrNotSupported, says: "this node changes no time slices; leave the interval out"},
		"two intervals of one GPU":          {pieces: []piece{{device: "gpu-00-00-ts", config: interval(gpu.TimeSliceLong)}, {device: "gpu-00-00-ts", config: interval(gpu.TimeSliceShort)}}, is: gpu.ErrInvalid, says: "the time slices Long and Short of one GPU"},
		"another interval than others want": {others: []*resourceapi.ResourceClaim{pieces("other", piece{device: "gpu-00-00-ts", config: interval(gpu.TimeSliceLong)})}, pieces: []piece{{device: "gpu-00-00-ts", config: interval(gpu.TimeSliceShort)}}, is: gpu.ErrInUse, says: "already in use with the time slice Long by another claim"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			if c.world != nil {
				c.world(w)
			}
			m := w.start()
			for _, other := range c.others {
				if _, err := m.Prepare(once(), other); err != nil {
					t.Fatal(err)
				}
			}
			before := w.left(m)
			devices, err := m.Prepare(once(), pieces("refused", c.pieces...))
			if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) || len(devices) != 0 {
				t.Errorf("got %v, %v\nwant %v that says %q", devices, err, c.is, c.says)
			}
			if diff := cmp.Diff(before, w.left(m)); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

// MPS counts as one process on the GPU, so shares work in an exclusive mode. A claim
// that was prepared before the mode changed stays prepared.
func TestComputeModesThatAdmitShares(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	mode(gpu.ComputeModeExclusiveProcess)(w)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	mode(gpu.ComputeModeProhibited)(w)
	if _, err := m.Prepare(once(), c); err != nil {
		t.Errorf("prepared again: %v", err)
	}
	must(t, m.Unprepare(once(), c.UID))
}

// The configuration of the claim overrides that of the class, and only the one in
// effect must be valid.
func TestTheClaimsConfigurationWins(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	c := pieces("c", piece{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", plain)})
	class := opaque(resourceapi.AllocationConfigSourceClass, driver, config("GpuConfig", together))
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, class)
	devices, err := w.start().Prepare(once(), c)
	if err != nil || devices[0].Strategy() != v1alpha1.StrategyPlain {
		t.Errorf("got %+v, %v, want a plain share", devices, err)
	}
}

// The scheduler assigns a different share ID to every share of a device.
func TestOneShareTwiceInAClaimIsRefused(t *testing.T) {
	for name, ids := range map[string][2]types.UID{"the same share": {"a", "a"}, "without share IDs": {}} {
		for _, device := range []string{"gpu-00-00", "gpu-00-00-ts"} {
			t.Run(name+" of "+device, func(t *testing.T) {
				w := newShareWorld(t, t.TempDir(), 1)
				memory := "2Gi"
				if strings.HasSuffix(device, "-ts") {
					memory = ""
				}
				c := pieces("twice", piece{device: device, memory: memory, config: config("ShareConfig", plain)}, piece{device: device, memory: memory, config: config("ShareConfig", plain)})
				if memory == "" {
					c.Status.Allocation.Devices.Config = nil
				}
				for i, id := range ids {
					c.Status.Allocation.Devices.Results[i].ShareID = nil
					if id != "" {
						c.Status.Allocation.Devices.Results[i].ShareID = &id
					}
				}
				m := w.start()
				if _, err := m.Prepare(once(), c); !errors.Is(err, gpu.ErrInvalid) {
					t.Errorf("got %v, want %v", err, gpu.ErrInvalid)
				}
				if got := w.left(m); got != "" {
					t.Errorf("left behind:\n%s", got)
				}
			})
		}
	}
}
