// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
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
		"more compute than all": {pieces: []piece{{device: "gpu-00-00", memory: "20Gi", compute: "101"}}, is: gpu.ErrInvalid, says: "101 percent of compute; want a whole number from 0 to 100"},
		"part of a percent":     {pieces: []piece{{device: "gpu-00-00", memory: "20Gi", compute: "500m"}}, is: gpu.ErrInvalid, says: "500m percent of compute"},
		"several for one request": {
			pieces: []piece{{device: "gpu-00-00", memory: "20Gi", request: "r"}, {device: "gpu-01-00", memory: "20Gi", request: "r"}}, is: gpu.ErrInvalid,
			says: "2 MPS shares for one request, and a container can be client of one MPS daemon only; see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md",
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

		"a GpuConfig for a share": {
			pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("GpuConfig", "")}}, is: gpu.ErrInvalid,
			says: "a GpuConfig cannot configure a share (20Gi of 80Gi memory); write a ShareConfig, or remove capacity",
		},
		"a MigConfig for a GPU":         {pieces: []piece{{device: "gpu-00-00", config: config("MigConfig", "")}}, is: gpu.ErrInvalid, says: "write a GpuConfig"},
		"MPS for time slices":           {pieces: []piece{{device: "gpu-00-00-ts", config: config("GpuConfig", together)}}, is: gpu.ErrInvalid, says: "sharing.strategy: invalid: MPS on time slices"},
		"a share on a node without MPS": {world: noMPS, pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", "")}}, is: gpu.ErrNotSupported, says: "no MPS daemons run on this node"},
		"processes without MPS":         {world: noMPS, pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", together)}}, is: gpu.ErrNotSupported, says: "no MPS daemons run on this node"},
		"MPS on a GPU without limits":   {world: change(func(g *gpu.GPU) { g.ComputeCapability = gpu.Version{Major: 6, Minor: 1} }), pieces: []piece{{device: "gpu-00-00", memory: "20Gi", config: config("ShareConfig", "")}}, is: gpu.ErrNotSupported, says: "the GPU has compute capability 6.1, and MPS limits its clients from 7.0"},
		"MPS for users that it does not serve": {
			pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"multiUser":true}}`)}}, is: gpu.ErrNotSupported,
			says: "multiUser: not supported: MPS on this node serves one user at a time; leave it out, or ask the administrator for mps.multiUser: true in the chart's values",
		},
		"a limit above the GPU's memory": {pieces: []piece{{device: "gpu-00-00", config: config("GpuConfig", `"sharing":{"strategy":"MPS","mps":{"memoryLimit":"100Gi"}}`)}}, is: gpu.ErrInvalid, says: "a memory limit of 100Gi for a process, and the device has 80Gi"},
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
				must(t, errOf(m.Prepare(once(), other)))
			}
			wantRefused(t, m, w.left, pieces("refused", c.pieces...), c.is, c.says)
		})
	}
}

// MPS counts as one process on the GPU, so shares work in an exclusive mode. A claim
// that was prepared before the mode changed stays prepared.
func TestComputeModesThatAdmitShares(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	mode(gpu.ComputeModeExclusiveProcess)(w)
	m, c := w.start(), pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
	must(t, errOf(m.Prepare(once(), c)))
	mode(gpu.ComputeModeProhibited)(w)
	if _, err := m.Prepare(once(), c); err != nil {
		t.Errorf("prepared again: %v", err)
	}
	must(t, m.Unprepare(once(), c.UID))
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
				wantRefused(t, m, w.left, c, gpu.ErrInvalid)
			})
		}
	}
}

// Each boundary has a case that is admitted and a case that exceeds it.
func TestTheBoundariesOfSharing(t *testing.T) {
	processes := func(n int) string { return config("ShareConfig", fmt.Sprintf(`"processes":%d`, n)) }
	// The smallest share may have less memory than a 48th of the GPU.
	small := func(n int) (all []*resourceapi.ResourceClaim) {
		for i := range n {
			all = append(all, pieces(fmt.Sprint("small-", i), piece{device: "gpu-00-00", memory: "1Gi"}))
		}
		return all
	}
	perDevice := func(device int, limit string) string {
		return config("GpuConfig", fmt.Sprintf(`"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":%d,"memoryLimit":"%s"}]}}`, device, limit))
	}
	for name, c := range map[string]struct {
		others []*resourceapi.ResourceClaim
		pieces []piece
		is     error // nil if the claim is admitted
		says   string
	}{
		"as many processes as MPS admits, in all of the memory": {
			pieces: []piece{{device: "gpu-00-00", memory: "80Gi", config: processes(48)}},
		},
		"as many processes as a share has of them": {
			pieces: []piece{{device: "gpu-00-00", memory: "30Gi", config: processes(18)}},
		},
		"one process more than a share has of them": {
			pieces: []piece{{device: "gpu-00-00", memory: "30Gi", config: processes(19)}},
			is:     gpu.ErrInvalid, says: "a share of 30Gi has 18 of the 48 processes that MPS admits at a time to the device with 80Gi, and the ShareConfig declares 19; declare 18 in the ShareConfig, or ask for 32427Mi of memory",
		},
		"the memory that is said to be enough": {
			pieces: []piece{{device: "gpu-00-00", memory: "32427Mi", config: processes(19)}},
		},
		"a Mi less than that": {
			pieces: []piece{{device: "gpu-00-00", memory: "32426Mi", config: processes(19)}},
			is:     gpu.ErrInvalid, says: "ask for 32427Mi",
		},
		"the processes of shares that fill a GPU": {
			others: []*resourceapi.ResourceClaim{
				pieces("a", piece{device: "gpu-00-00", memory: "50Gi", config: processes(30)}),
				pieces("b", piece{device: "gpu-00-00", memory: "20Gi", config: processes(12)}),
			},
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi", config: processes(6)}},
		},
		"as many shares as MPS admits processes": {
			others: small(47), pieces: []piece{{device: "gpu-00-00", memory: "1Gi"}},
		},
		"one share more": {
			others: small(48),
			pieces: []piece{{device: "gpu-00-00", memory: "1Gi"}},
			is:     gpu.ErrNoCapacity, says: "MPS admits 48 processes",
		},
		"a limit for the last device of a request": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "10Gi")}},
		},
		"a limit for the device after the last": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(1, "10Gi")}},
			is:     gpu.ErrInvalid, says: "sharing.mps.perDevice[0].device: invalid: 1; the request has 1 devices, counted from 0",
		},
		"a limit for a device of another request": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(1, "10Gi")}, {device: "gpu-01-00"}},
			is:     gpu.ErrInvalid, says: "sharing.mps.perDevice[0].device",
		},
		"a limit of all that a device has": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "80Gi")}},
		},
		"a limit of more than a device has": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "81921Mi")}},
			is:     gpu.ErrInvalid, says: "81921Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			m := w.start()
			for _, other := range c.others {
				must(t, errOf(m.Prepare(once(), other)))
			}
			_, err := m.Prepare(once(), pieces("c", c.pieces...))
			if !errors.Is(err, c.is) || c.is != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
			wantShort(t, err)
		})
	}
}

func TestTheLastOfAClaimsConfigurationsWins(t *testing.T) {
	mps := config("ShareConfig", "")
	for name, c := range map[string]struct {
		configs []string // of the claim, in their order
		want    v1alpha1.Strategy
	}{
		"MPS after Plain": {[]string{config("ShareConfig", plain), mps}, v1alpha1.StrategyMPS},
		"Plain after MPS": {[]string{mps, config("ShareConfig", plain)}, v1alpha1.StrategyPlain},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			share := pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
			for _, parameters := range c.configs {
				devices := &share.Status.Allocation.Devices
				devices.Config = append(devices.Config, opaque(resourceapi.AllocationConfigSourceClaim, driver, parameters))
			}
			devices, err := w.start().Prepare(once(), share)
			must(t, err)
			if got := devices[0].Strategy(); got != c.want {
				t.Errorf("the share is held by %s, want %s", got, c.want)
			}
		})
	}
}

// nvidiaConfig returns an MPS configuration of the kind with the settings.
func nvidiaConfig(kind, settings string) string {
	return `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"` + kind + `","sharing":{"strategy":"MPS","mpsConfig":{` + settings + `}}}`
}

// configured returns a claim for the devices with the configurations. Each device has
// its own request, named after its index.
func configured(devices []string, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	var all []piece
	for i, d := range devices {
		all = append(all, piece{device: d, request: fmt.Sprint("r", i)})
	}
	c := pieces("c", all...)
	c.Status.Allocation.Devices.Config = configs
	return c
}

func TestOneConfigurationOfNVIDIAIsForItsGPUsTogether(t *testing.T) {
	const limits = `"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"10Gi","defaultPerDevicePinnedMemoryLimit":{"1":"5Gi"}`
	with := func(parameters string, requests ...string) resourceapi.DeviceAllocationConfiguration {
		return opaque(resourceapi.AllocationConfigSourceClaim, driver, parameters, requests...)
	}
	gpus := []string{"gpu-01-00", "gpu-00-00"}
	// An index counts them in the order of their UUIDs.
	const one = "gpu-01-00 of GPU-1=5120M,GPU-0=10240M, 50%\n"
	const pair = "gpu-00-00 of GPU-0\ngpu-01-00 of GPU-1\n"
	for name, c := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		daemons string
	}{
		"without requests":         {configured(gpus, with(nvidiaConfig("GpuConfig", limits))), one},
		"for both requests":        {configured(gpus, with(nvidiaConfig("GpuConfig", limits), "r0", "r1")), one},
		"below one that wins":      {configured(gpus, with(nvidiaConfig("GpuConfig", "")), with(nvidiaConfig("GpuConfig", limits))), one},
		"one for each request":     {configured(gpus, with(nvidiaConfig("GpuConfig", ""), "r0"), with(nvidiaConfig("GpuConfig", ""), "r1")), pair},
		"our own without requests": {configured(gpus, with(config("GpuConfig", together))), pair},
		"for one of them": {
			configured(gpus, with(nvidiaConfig("GpuConfig", `"defaultPerDevicePinnedMemoryLimit":{"0":"5Gi"}`)), with(config("GpuConfig", ""), "r0")),
			"gpu-00-00 of GPU-0=5120M\n",
		},
		"one request of both": {
			pieces("c", piece{device: "gpu-01-00", request: "r", config: nvidiaConfig("GpuConfig", limits)}, piece{device: "gpu-00-00", request: "r"}), one,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			m := w.start()
			must(t, errOf(m.Prepare(once(), c.claim)))
			require.Same(t, "daemons", c.daemons, w.supervisor.String())
			must(t, m.Unprepare(once(), c.claim.UID))
			wantNothing(t, w.left(m))
		})
	}
}

// A container of one request also counts its devices from 0, so it gets no limits by
// index. A container with all devices has one pipe.
func TestContainersOfRequestsThatAreConfiguredTogether(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	c := configured([]string{"gpu-01-00", "gpu-00-00"}, opaque(resourceapi.AllocationConfigSourceClaim, driver,
		nvidiaConfig("GpuConfig", `"defaultActiveThreadPercentage":50,"defaultPerDevicePinnedMemoryLimit":{"1":"5Gi"}`)))
	must(t, errOf(w.start().Prepare(once(), c)))
	const client = "  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-01-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n" +
		"  /run/sup/gpu-01-00/pipe at /run/sup/gpu-01-00/pipe\n  /run/sup/gpu-01-00/shm at /dev/shm\n"
	require.Same(t, "CDI", "uid-c-gpu-01-00\n"+client+"uid-c-gpu-00-00\n"+client, w.edits(c))
}

func TestAConfigurationOfNVIDIAWithoutRequestsIsForDevicesOfItsKind(t *testing.T) {
	const part = h100Other + "-mig-1g-10gb-0"
	onGPU, onMIG := nvidiaConfig("GpuConfig", `"defaultActiveThreadPercentage":20`), nvidiaConfig("MigDeviceConfig", `"defaultActiveThreadPercentage":30`)
	with := func(parameters string, requests ...string) resourceapi.DeviceAllocationConfiguration {
		return opaque(resourceapi.AllocationConfigSourceClaim, driver, parameters, requests...)
	}
	for name, c := range map[string]struct {
		configs []resourceapi.DeviceAllocationConfiguration
		want    string // percentages of the GPU and the MIG device, 0 without MPS
		says    string // of the error, if it is refused
	}{
		"one for each kind":                   {configs: []resourceapi.DeviceAllocationConfiguration{with(onGPU), with(onMIG)}, want: "20 30"},
		"the other way round":                 {configs: []resourceapi.DeviceAllocationConfiguration{with(onMIG), with(onGPU)}, want: "20 30"},
		"for GPUs alone":                      {configs: []resourceapi.DeviceAllocationConfiguration{with(onGPU)}, want: "20 0"},
		"for MIG devices alone":               {configs: []resourceapi.DeviceAllocationConfiguration{with(onMIG)}, want: "0 30"},
		"naming the requests of their kinds":  {configs: []resourceapi.DeviceAllocationConfiguration{with(onGPU, "r0"), with(onMIG, "r1")}, want: "20 30"},
		"for GPUs, naming a MIG device":       {configs: []resourceapi.DeviceAllocationConfiguration{with(onGPU, "r0", "r1")}, says: "a GpuConfig cannot configure a MIG device; write a MigDeviceConfig"},
		"for MIG devices, naming a GPU":       {configs: []resourceapi.DeviceAllocationConfiguration{with(onMIG, "r0")}, says: "a MigDeviceConfig cannot configure a GPU; write a GpuConfig"},
		"our own":                             {configs: []resourceapi.DeviceAllocationConfiguration{with(config("GpuConfig", ""))}, says: "a GpuConfig cannot configure a MIG device; write a MigConfig"},
		"of another kind, and with a mistake": {configs: []resourceapi.DeviceAllocationConfiguration{with(onGPU), with(nvidiaConfig("MigDeviceConfig", `"limit":1`)), with(onMIG)}, says: `unknown field "sharing.mpsConfig.limit"`},
		"of a class, which names its request": {configs: []resourceapi.DeviceAllocationConfiguration{opaque(resourceapi.AllocationConfigSourceClass, driver, onGPU, "r1")}, says: "a GpuConfig cannot configure a MIG device"},
		"of a class, below the claim's":       {configs: []resourceapi.DeviceAllocationConfiguration{with(onMIG), opaque(resourceapi.AllocationConfigSourceClass, driver, onGPU, "r1")}, want: "0 30"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
			m := w.start()
			devices, err := m.Prepare(once(), configured([]string{h100, part}, c.configs...))
			if c.says != "" {
				if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, %v, want an error that says %q", devices, err, c.says)
				}
				wantShort(t, err)
				return
			}
			must(t, err)
			var got []string
			for _, d := range devices {
				percentage := 0
				if d.Terms.MPS != nil {
					percentage = d.Terms.MPS.ThreadPercentage
				}
				got = append(got, fmt.Sprint(percentage))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("the percentages are %v, want %s", got, c.want)
			}
		})
	}
}

func TestAShareNeedsAConfigurationOfOurs(t *testing.T) {
	c := pieces("c", piece{device: "gpu-00-00", memory: "20Gi", config: nvidiaConfig("GpuConfig", "")})
	const says = "a GpuConfig cannot configure a share (20Gi of 80Gi memory); write a ShareConfig of gpu.nvidia.com/v1alpha1, or remove capacity"
	if _, err := newShareWorld(t, t.TempDir(), 1).start().Prepare(once(), c); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an error that says %q", err, says)
	}
}

func TestWhatNVIDIAsConfigurationSaysOfDevicesIsRefusedInItsWords(t *testing.T) {
	for limits, says := range map[string]string{
		`"2":"5Gi"`: `sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit["2"]: invalid: 2; the configuration is for 2 devices, counted from 0`,
		`"GPU-0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11":"5Gi"`: `is none of the devices that this configuration is for; name them by their index; the configuration is for 2 devices, counted from 0`,
	} {
		w := newShareWorld(t, t.TempDir(), 2)
		c := configured([]string{"gpu-00-00", "gpu-01-00"}, opaque(resourceapi.AllocationConfigSourceClaim, driver, nvidiaConfig("GpuConfig", `"defaultPerDevicePinnedMemoryLimit":{`+limits+`}`)))
		if _, err := w.start().Prepare(once(), c); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", limits, err, says)
		}
	}
}
