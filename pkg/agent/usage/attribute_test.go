// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const gi = 1 << 30

var (
	first  = gpu.PCIAddress{Bus: 0x1b}
	second = gpu.PCIAddress{Bus: 0x43}
	small  = gpu.Profile{Slices: 1, MemoryGB: 10}
)

// node has two GPUs of 80 GiB: the first whole, in slots and in seats, the second in MIG
// mode with a fault.
func node() usage.Node {
	capacity := func(amounts ...string) kind.Capacities {
		c := kind.Capacities{}
		for i := 0; i < len(amounts); i += 2 {
			c[resourceapi.QualifiedName(amounts[i])] = resourceapi.DeviceCapacity{Value: resource.MustParse(amounts[i+1])}
		}
		return c
	}
	mig := gpu.MIG{Enabled: true, Profiles: []gpu.ProfileInfo{{Profile: small, Multiprocessors: 16, Placements: []gpu.Placement{{Start: 0, Size: 1}, {Start: 1, Size: 1}}}}}
	return usage.Node{
		Published: map[string]kind.Capacities{
			"gpu-1b-00":                capacity("memory", "80Gi"),
			"gpu-1b-00-ts":             capacity("memory", "80Gi", "slots", "4"),
			"gpu-1b-00-seat":           capacity("memory", "20Gi", "seats", "4"),
			"gpu-43-00-mig-1g-10gb-0":  capacity("memory", "10Gi"),
			"gpu-43-00-mig-1g-10gb-1":  capacity("memory", "10Gi"),
			"gpu-1b-00-mig-1g-10gb-99": capacity("memory", "10Gi"),
		},
		GPUs: map[gpu.PCIAddress]usage.GPU{
			first:  usage.NewGPU(gpu.GPU{MemoryBytes: 81 * gi, ReservedBytes: gi, Multiprocessors: 128}, true),
			second: usage.NewGPU(gpu.GPU{MemoryBytes: 81 * gi, ReservedBytes: gi, Multiprocessors: 128, MIG: mig}, false),
		},
	}
}

// held is a claim with devices that its pods were reserved for.
func held(name string, pods []types.UID, devices ...claim.Device) claim.Claim {
	return claim.Claim{Ref: claim.Ref{Namespace: "team", Name: name, UID: types.UID(name)}, Phase: claim.Prepared, Pods: pods, Devices: devices}
}

func whole() claim.Device {
	return claim.Device{Name: kindtest.Name("gpu-1b-00"), UUID: "GPU-1"}
}

// shareOf has a share of a GPU in GiB and percent.
func shareOf(gib uint64, compute int) claim.Device {
	d := whole()
	d.Terms.Share = &share.Amount{Memory: gib * gi, Compute: compute}
	return d
}

// client has a share whose processes are clients of MPS.
func client(gib uint64, compute int) claim.Device {
	d := shareOf(gib, compute)
	d.Terms.MPS = &share.Client{Daemon: d.Name, Processes: 1}
	return d
}

// enforced has a share that the driver limits.
func enforced(gib uint64, compute int) claim.Device {
	d := shareOf(gib, compute)
	d.Terms.Limit = &share.Limit{Memory: gib * gi, Containers: 1}
	return d
}

// enforcedClient has a share whose processes are clients of MPS, and that the driver limits.
func enforcedClient(gib uint64, compute int) claim.Device {
	d := client(gib, compute)
	d.Terms.Limit = enforced(gib, compute).Terms.Limit
	return d
}

func slots(n int) claim.Device {
	return claim.Device{Name: kindtest.Name("gpu-1b-00-ts"), UUID: "GPU-1", Terms: share.Terms{Slots: n}}
}

func partition(start int) claim.Device {
	return claim.Device{Name: kindtest.Name(fmt.Sprintf("gpu-43-00-mig-1g-10gb-%d", start)), UUID: fmt.Sprintf("MIG-%d", start)}
}

// in is a process of a container of a pod, with names after the UID and the ID.
func in(pod, container string, gib uint64) usage.Process {
	return usage.Process{Container: usage.Container{PodUID: pod, ID: container, Pod: pod + "-name", Name: container + "-name"}, MemoryBytes: gib * gi}
}

func computing(p usage.Process, sm float64) usage.Process {
	p.SM = &sm
	return p
}

func onInstance(p usage.Process, id int) usage.Process {
	p.GPUInstance = &id
	return p
}

func onFirst(processes ...usage.Process) usage.Readings {
	return usage.Readings{GPUs: map[gpu.PCIAddress]usage.Reading{first: {Processes: processes, HasSM: true}}}
}

func limited(c usage.Process, limit, used uint64, devices ...usage.LimitedDevice) usage.Limited {
	return usage.Limited{Address: first, Container: c.Container, MemoryLimit: gpu.MemoryLimit{Bytes: limit, UsedBytes: used}, Devices: devices}
}

// text renders the rows, memory in GiB.
func text(r agentv1.Report) string {
	var lines []string
	for _, row := range r.Rows {
		line := fmt.Sprintf("%s %s %s", row.Claim, row.Device, row.Enforcement)
		if row.Pod+row.Container != "" {
			line += fmt.Sprintf(" %s/%s", row.Pod, row.Container)
		}
		bytes := func(name string, value *uint64) {
			if value != nil {
				line += fmt.Sprintf(" %s=%.4g", name, float64(*value)/gi)
			}
		}
		part := func(name string, value *float64) {
			if value != nil {
				line += fmt.Sprintf(" %s=%.4g", name, *value)
			}
		}
		bytes("used", row.MemoryUsedBytes)
		bytes("limit", row.MemoryLimitBytes)
		bytes("promised", row.MemoryPromisedBytes)
		part("compute", row.ComputePromised)
		part("sm", row.SMUsed)
		if row.Healthy != nil && !*row.Healthy {
			line += " unhealthy"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func pods(uids ...types.UID) []types.UID { return uids }

func TestUseIsAttributedToClaimsAndContainers(t *testing.T) {
	gone := in("p", "c", 5)
	gone.Name, gone.Pod = "", ""
	unmeasured := in("p", "c", 0)
	restarted := in("p", "c", 2)
	restarted.ID = "new"
	unlimited := limited(in("p", "c", 0), gpu.NoMemoryLimit, 0, usage.LimitedDevice{Claim: "a", Device: "gpu-1b-00", Bytes: 10 * gi})
	migs := usage.Reading{
		Partitions: []gpu.Partition{{UUID: "MIG-0", GPUInstanceID: 7}, {UUID: "MIG-1", GPUInstanceID: 9}},
		Processes:  []usage.Process{onInstance(in("p", "c", 3), 9), onInstance(in("q", "d", 4), 9)},
	}
	for name, c := range map[string]struct {
		claims   []claim.Claim
		readings usage.Readings
		want     string
	}{
		"a whole GPU, two containers, processes of each": {
			[]claim.Claim{held("a", pods("p"), whole())},
			onFirst(computing(in("p", "c", 3), .25), computing(in("p", "c", 4), .5), in("p", "d", 5)),
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1
a gpu-1b-00 hardware p-name/c-name used=7 sm=0.75
a gpu-1b-00 hardware p-name/d-name used=5 sm=0`,
		},
		"a claim that no process uses": {
			[]claim.Claim{held("a", pods("p"), whole())}, onFirst(),
			`a gpu-1b-00 hardware used=0 limit=80 promised=80 compute=1 sm=0`,
		},
		"a GPU that does not answer": {
			[]claim.Claim{held("a", pods("p"), whole())}, usage.Readings{},
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1`,
		},
		"a process of the host, and one of a pod that may have joined": {
			[]claim.Claim{held("a", pods("p"), whole())}, onFirst(in("foreign", "c", 5)),
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1`,
		},
		"shares of MPS: a client without a sample may compute": {
			[]claim.Claim{held("a", pods("p"), client(10, 25)), held("b", pods("q"), client(20, 0))},
			onFirst(in("p", "c", 3), computing(in("q", "d", 4), .5)),
			`a gpu-1b-00 cooperative promised=10 compute=0.25
b gpu-1b-00 cooperative promised=20 compute=0
a gpu-1b-00 cooperative p-name/c-name used=3
b gpu-1b-00 cooperative q-name/d-name used=4 sm=0.5`,
		},
		"the driver counts a container that it limits, and NVML's processes are not added": {
			[]claim.Claim{held("a", pods("p"), enforcedClient(10, 0))},
			usage.Readings{GPUs: onFirst(computing(in("p", "c", 3), .5)).GPUs, Limited: []usage.Limited{
				limited(in("p", "c", 0), 5*gi, 4*gi, usage.LimitedDevice{Claim: "a", Device: "gpu-1b-00", Bytes: 5 * gi}),
				limited(in("p", "d", 0), 5*gi, 0, usage.LimitedDevice{Claim: "a", Device: "gpu-1b-00", Bytes: 5 * gi}),
			}},
			`a gpu-1b-00 driver promised=10 compute=0
a gpu-1b-00 driver p-name/c-name used=4 limit=5 sm=0.5
a gpu-1b-00 driver p-name/d-name used=0 limit=5`,
		},
		"a limit that an administrator has removed": {
			[]claim.Claim{held("a", pods("p"), enforced(10, 0))},
			usage.Readings{GPUs: onFirst(in("p", "c", 3)).GPUs, Limited: []usage.Limited{unlimited}},
			`a gpu-1b-00 driver promised=10 compute=0
a gpu-1b-00 driver p-name/c-name used=3 sm=0`,
		},
		"slots of a GPU, one of them idle": {
			[]claim.Claim{held("a", pods("p"), slots(1)), held("b", pods("q"), slots(2))}, onFirst(in("p", "c", 30)),
			`a gpu-1b-00-ts none compute=0
b gpu-1b-00-ts none used=0 compute=0 sm=0
a gpu-1b-00-ts none p-name/c-name used=30 sm=0`,
		},
		"MIG devices, by their GPU instance; a process of another claim's pod is a foreign process": {
			[]claim.Claim{held("a", pods("p"), partition(0)), held("b", pods("p"), partition(1))},
			usage.Readings{GPUs: map[gpu.PCIAddress]usage.Reading{second: migs}},
			`a gpu-43-00-mig-1g-10gb-0 hardware limit=10 promised=10 compute=0.125 unhealthy
b gpu-43-00-mig-1g-10gb-1 hardware limit=10 promised=10 compute=0.125 unhealthy
b gpu-43-00-mig-1g-10gb-1 hardware p-name/c-name used=3`,
		},
		"a MIG device that is not found": {
			[]claim.Claim{held("a", pods("p"), partition(0))},
			usage.Readings{GPUs: map[gpu.PCIAddress]usage.Reading{second: {}}},
			`a gpu-43-00-mig-1g-10gb-0 hardware limit=10 promised=10 compute=0.125 unhealthy`,
		},
		"a container that is restarted while its processes end": {
			[]claim.Claim{held("a", pods("p"), whole())}, onFirst(in("p", "c", 3), restarted),
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1
a gpu-1b-00 hardware p-name/c-name used=5 sm=0`,
		},
		"two shares of a device in one claim": {
			[]claim.Claim{held("a", pods("p"), shareOf(10, 10), shareOf(20, 20))}, onFirst(in("p", "c", 3)),
			`a gpu-1b-00 none promised=30 compute=0.3
a gpu-1b-00 none p-name/c-name used=3 sm=0`,
		},
		"names that are not known": {
			[]claim.Claim{held("a", pods("p"), whole())}, onFirst(gone),
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1
a gpu-1b-00 hardware p/c used=5 sm=0`,
		},
		"memory that the driver does not report": {
			[]claim.Claim{held("a", pods("p"), whole())}, onFirst(in("p", "c", 3), unmeasured),
			`a gpu-1b-00 hardware limit=80 promised=80 compute=1
a gpu-1b-00 hardware p-name/c-name sm=0`,
		},
		"a claim whose record is lost": {
			[]claim.Claim{held("a", nil, claim.Device{Name: kindtest.Name("gpu-1b-00"), UUID: "GPU-1", Terms: share.Terms{Share: &share.Amount{}}})}, usage.Readings{},
			`a gpu-1b-00 `,
		},
		"all GPUs, to monitor them": {[]claim.Claim{held("a", pods("p"), claim.Device{Name: kindtest.Name("node-gpus")})}, onFirst(), ``},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "report", c.want, text(usage.ReportOf(c.claims, node(), c.readings)))
		})
	}
}

func TestSeveralClaimsOfAPodOnOneGPU(t *testing.T) {
	claims := []claim.Claim{held("a", pods("p"), shareOf(10, 0)), held("b", pods("p"), shareOf(30, 0))}
	const promised = `a gpu-1b-00 none promised=10 compute=0
b gpu-1b-00 none promised=30 compute=0
`
	processes := onFirst(computing(in("p", "c", 4), .5), in("p", "d", 8))
	for name, c := range map[string]struct {
		uses func(usage.Container, claim.Ref) bool
		want string
	}{
		"each container uses one": {
			func(c usage.Container, of claim.Ref) bool { return (c.ID == "c") == (of.Name == "b") },
			`a gpu-1b-00 none p-name/d-name used=8 sm=0
b gpu-1b-00 none p-name/c-name used=4 sm=0.5`,
		},
		"each container uses both": {
			func(usage.Container, claim.Ref) bool { return true },
			`a gpu-1b-00 none p-name/c-name used=1 sm=0.25
a gpu-1b-00 none p-name/d-name used=2 sm=0
b gpu-1b-00 none p-name/c-name used=3 sm=0.25
b gpu-1b-00 none p-name/d-name used=6 sm=0`,
		},
		"the kubelet does not know the pod": {
			func(usage.Container, claim.Ref) bool { return false },
			`a gpu-1b-00 none p-name/c-name used=1 sm=0.25
a gpu-1b-00 none p-name/d-name used=2 sm=0
b gpu-1b-00 none p-name/c-name used=3 sm=0.25
b gpu-1b-00 none p-name/d-name used=6 sm=0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			processes.Uses = c.uses
			require.Same(t, "report", promised+c.want, text(usage.ReportOf(claims, node(), processes)))
		})
	}
	// The driver limits a container by the sum of its devices.
	device := func(claim types.UID, gib uint64) usage.LimitedDevice {
		return usage.LimitedDevice{Claim: claim, Device: "gpu-1b-00", Bytes: gib * gi}
	}
	got := usage.ReportOf(claims, node(), usage.Readings{Limited: []usage.Limited{limited(in("p", "c", 0), 40*gi, 4*gi, device("a", 10), device("b", 30))}})
	const want = promised + `a gpu-1b-00 none p-name/c-name used=1 limit=10
b gpu-1b-00 none p-name/c-name used=3 limit=30`
	require.Same(t, "limited by the driver", want, text(got))
}

func TestNoByteIsLostOrCountedTwice(t *testing.T) {
	var claims []claim.Claim
	for i := range 3 {
		claims = append(claims, held(fmt.Sprint(i), pods("p"), shareOf(uint64(7*i+1), 0)))
	}
	p := in("p", "c", 0)
	p.MemoryBytes = 10*gi + 1
	var sum uint64
	for _, row := range usage.ReportOf(claims, node(), onFirst(p)).Rows {
		if row.MemoryUsedBytes != nil {
			sum += *row.MemoryUsedBytes
		}
	}
	if sum != p.MemoryBytes {
		t.Errorf("a process with %d bytes counts as %d", p.MemoryBytes, sum)
	}
}

func TestAReportIsBounded(t *testing.T) {
	var processes []usage.Process
	for i := range agentv1.MaxRows {
		processes = append(processes, in("p", fmt.Sprint(i), 1))
	}
	r := usage.ReportOf([]claim.Claim{held("a", pods("p"), shareOf(10, 0))}, node(), onFirst(processes...))
	if len(r.Rows) != agentv1.MaxRows || r.Omitted != 1 || r.Rows[0].Container != "" {
		t.Errorf("%d rows and %d omitted, first %+v; want %d, 1 and the row of the claim", len(r.Rows), r.Omitted, r.Rows[0], agentv1.MaxRows)
	}
	if !slices.IsSortedFunc(r.Rows[1:], func(a, b agentv1.Row) int { return strings.Compare(a.Container, b.Container) }) {
		t.Error("the rows are in no order")
	}
}
