// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestPrepareAndUnprepare(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	m := w.start()
	c := newClaim("pair", "gpu-01-00", "gpu-00-00")
	share := types.UID("f3f3f3f3-0000-4000-8000-000000000000")
	c.Status.Allocation.Devices.Results[1].ShareID = &share
	c.Status.Allocation.Devices.Results[1].Request = "gpu-1/big"

	device := func(request string, bus int, share *types.UID) claim.Device {
		a := gpu.PCIAddress{Bus: uint8(bus)}
		address := a.String()
		return claim.Device{
			Request: request, Pool: pool, Name: kind.Whole(a), ShareID: share, UUID: fmt.Sprintf("GPU-%d", bus),
			CDIDeviceIDs: []string{"gpu.nvidia.com/claim=uid-pair-" + a.DeviceName()},
			Attributes:   map[string]resourceapi.DeviceAttribute{"resource.kubernetes.io/pciBusID": {StringValue: &address}},
		}
	}
	want := []claim.Device{device("gpu-0", 1, nil), device("gpu-1/big", 0, &share)}
	// Prepare again in the same process and in others, as after a restart of the
	// kubelet or the agent.
	for _, m := range []*claim.Manager{m, m, w.start(), w.start()} {
		got, err := m.Prepare(t.Context(), c)
		must(t, err)
		require.Same(t, "devices", want, got)
	}
	require.Same(t, "held", "team-a/pair Prepared gpu-01-00 gpu-00-00\n", w.held(m))
	require.Same(t, "files", preparedFiles(c), w.files())
	for range 2 {
		must(t, m.Unprepare(t.Context(), c.UID))
	}
	wantNothing(t, w.files()+w.held(m))
}

func TestPrepareReturnsNoDevicesForAClaimOfOtherDrivers(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("nic", "nic-0")
	c.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
	c.Status.Allocation.Devices.Results[0].Pool = "another"
	devices, err := w.start().Prepare(t.Context(), c)
	if err != nil || len(devices) != 0 || w.files() != "" {
		t.Errorf("got %v, %v and files %q, want nothing at all", devices, err, w.files())
	}
}

func opaque(source resourceapi.AllocationConfigSource, driver, parameters string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: source, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
		}},
	}
}

const gpuConfig = `{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig"}`

func TestPrepareIsTheLastLineOfDefence(t *testing.T) {
	type result = resourceapi.DeviceRequestAllocationResult
	first := func(change func(*result)) func(*resourceapi.ResourceClaim) {
		return func(c *resourceapi.ResourceClaim) { change(&c.Status.Allocation.Devices.Results[0]) }
	}
	config := func(configs ...resourceapi.DeviceAllocationConfiguration) func(*resourceapi.ResourceClaim) {
		return func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Config = configs }
	}
	yes := true
	for name, c := range map[string]struct {
		change func(*resourceapi.ResourceClaim)
		is     error
		says   string
	}{
		"held by another claim": {
			first(func(r *result) { r.Device = "gpu-01-00" }), gpu.ErrInUse,
			"device gpu-01-00: already in use: another claim holds gpu-01-00 (prepared)",
		},
		"not a device of ours": {
			first(func(r *result) { r.Device = "gpu0" }), gpu.ErrInvalid,
			`request gpu-0, device gpu0: device name "gpu0": invalid`,
		},
		"no such GPU": {
			first(func(r *result) { r.Device = "gpu-aa-00" }), gpu.ErrNotFound,
			"request gpu-0, device gpu-aa-00: not found: no GPU at 0000:aa:00.0",
		},
		"a partition": {
			first(func(r *result) { r.Device = "gpu-00-00-mig-1g-10gb-0" }), gpu.ErrNotFound,
			"this node publishes no device of type mig",
		},
		"of another node": {
			first(func(r *result) { r.Pool = "node-2" }), gpu.ErrInvalid,
			"it is of pool node-2, and this node has pool node-1",
		},
		"twice in one claim": {
			func(c *resourceapi.ResourceClaim) {
				rs := &c.Status.Allocation.Devices.Results
				*rs = append(*rs, (*rs)[0])
			}, gpu.ErrInvalid,
			"allocated twice in this claim",
		},
		"for administrators": {
			first(func(r *result) { r.AdminAccess = &yes }), gpu.ErrNotSupported,
			"see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts",
		},
		"in MIG mode": {
			first(func(r *result) { r.Device = "gpu-02-00" }), gpu.ErrNotSupported,
			"an administrator has switched it to MIG mode",
		},
		"lost": {
			first(func(r *result) { r.Device = "gpu-03-00" }), gpu.ErrLost,
			"request gpu-0, device gpu-03-00: GPU lost",
		},
		"a configuration of the class that does not decode": {
			config(opaque(resourceapi.AllocationConfigSourceClass, driver, `{"kind":`), opaque(resourceapi.AllocationConfigSourceClaim, driver, gpuConfig)), gpu.ErrInvalid,
			"configuration (FromClass): invalid parameters",
		},
		"a configuration with a field we do not have": {
			config(opaque(resourceapi.AllocationConfigSourceClaim, driver, `{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig","share":{}}`, "gpu-0")), gpu.ErrInvalid,
			`unknown field "share"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), 4)
			inMIGMode := w.gpus[gpu.PCIAddress{Bus: 2}]
			inMIGMode.MIG.Enabled = true
			w.gpus[inMIGMode.Address] = inMIGMode
			w.gpuOf = func(a gpu.PCIAddress) error {
				if a.Bus == 3 {
					return gpu.ErrLost
				}
				return nil
			}
			m := w.start()
			other := newClaim("other", "gpu-01-00")
			must(t, errOf(m.Prepare(t.Context(), other)))
			refused := newClaim("refused", "gpu-00-00")
			c.change(refused)
			wantRefused(t, m, w.held, refused, c.is, c.says)
			require.Same(t, "files", preparedFiles(other), w.files())
		})
	}
}

func TestWholeGPUsAreAccepted(t *testing.T) {
	whole := func(memory, compute string) map[resourceapi.QualifiedName]resource.Quantity {
		return map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory), "compute": resource.MustParse(compute)}
	}
	for name, change := range map[string]func(*resourceapi.DeviceAllocationResult){
		"exclusive":              func(*resourceapi.DeviceAllocationResult) {},
		"all memory":             func(a *resourceapi.DeviceAllocationResult) { a.Results[0].ConsumedCapacity = whole("80Gi", "0") },
		"all memory and compute": func(a *resourceapi.DeviceAllocationResult) { a.Results[0].ConsumedCapacity = whole("80Gi", "100") },
		"with configurations of both": func(a *resourceapi.DeviceAllocationResult) {
			a.Config = []resourceapi.DeviceAllocationConfiguration{
				opaque(resourceapi.AllocationConfigSourceClaim, driver, gpuConfig, "gpu-0"),
				opaque(resourceapi.AllocationConfigSourceClass, driver, gpuConfig),
			}
		},
		"with configurations for others": func(a *resourceapi.DeviceAllocationResult) {
			a.Config = []resourceapi.DeviceAllocationConfiguration{
				opaque(resourceapi.AllocationConfigSourceClass, "nic.example.com", "not ours"),
				opaque(resourceapi.AllocationConfigSourceClaim, driver, "not for this request", "nic"),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), 1)
			c := newClaim("whole", "gpu-00-00")
			change(&c.Status.Allocation.Devices)
			if _, err := w.start().Prepare(once(), c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAReallocatedClaimGetsItsNewDevices(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	m := w.start()
	old := newClaim("moved", "gpu-00-00")
	must(t, errOf(m.Prepare(t.Context(), old)))
	anew := newClaim("moved", "gpu-01-00")
	devices, err := m.Prepare(t.Context(), anew)
	if err != nil || len(devices) != 1 || devices[0].Name.String() != "gpu-01-00" {
		t.Errorf("got %v, %v, want gpu-01-00", devices, err)
	}
	if _, err := m.Prepare(once(), newClaim("next", "gpu-00-00")); err != nil {
		t.Errorf("the old device is not free: %v", err)
	}
}

func TestADriverReloadThatMovesTheMinorIsRepaired(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("one", "gpu-00-00")
	must(t, errOf(w.start().Prepare(t.Context(), c)))
	g := w.gpus[gpu.PCIAddress{}]
	g.Minor = 7
	w.gpus[g.Address] = g
	w.restart(t.Context())
	spec, err := os.ReadFile(w.specPath(c))
	if err != nil || !strings.Contains(string(spec), `"/dev/nvidia7"`) {
		t.Errorf("%v, the spec is still\n%s", err, spec)
	}
	// A repair that fails elsewhere must not leave the device node of before, which may be another GPU's.
	s := newShareWorld(t, t.TempDir(), 1)
	c = pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
	must(t, errOf(s.start().Prepare(once(), c)))
	s.gpus[g.Address] = g
	s.supervisor.err = gpu.ErrNotReady
	require.Error(t, "recover without a supervisor", errOf(s.start().Recover(once())), gpu.ErrNotReady)
	if text := s.specText(c); !strings.Contains(text, "/dev/nvidia7") {
		t.Errorf("without a supervisor the spec is still\n%s", text)
	}
}

// asking adds requests for the allocated devices to the claim. If memory is set, they
// request that memory. The first request has two alternatives.
func asking(c *resourceapi.ResourceClaim, memory string) *resourceapi.ResourceClaim {
	var capacity *resourceapi.CapacityRequirements
	if memory != "" {
		capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
	}
	for i := range c.Status.Allocation.Devices.Results {
		name := fmt.Sprintf("gpu-%d", i)
		request := resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{Capacity: capacity}}
		if i == 0 {
			request = resourceapi.DeviceRequest{Name: name, FirstAvailable: []resourceapi.DeviceSubRequest{
				{Name: "small", Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}}},
				{Name: "big", Capacity: capacity},
			}}
			c.Status.Allocation.Devices.Results[i].Request = name + "/big"
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, request)
	}
	return c
}

// Switching ECC changes the memory of a GPU and requires a reboot. Pods survive the
// reboot with their earlier allocation.
func TestAClaimForAWholeGPUStaysWholeAfterItsMemoryChanges(t *testing.T) {
	for name, after := range map[string]uint64{"more": 88 << 30, "as much": 80 << 30, "less": 72 << 30} {
		for configured, config := range map[string]string{"without configuration": "", "configured": config("GpuConfig", "")} {
			t.Run(name+", "+configured, func(t *testing.T) {
				w := newShareWorld(t, t.TempDir(), 2)
				whole := asking(pieces("whole", piece{device: "gpu-00-00", memory: "80Gi"}, piece{device: "gpu-01-00", memory: "80Gi", config: config}), "")
				prepare := func() {
					t.Helper()
					m, _ := w.restart(t.Context())
					devices, err := m.Prepare(t.Context(), whole)
					must(t, err)
					for _, d := range devices {
						if d.Strategy() != "" {
							t.Errorf("device %s is prepared as a share: %+v", d.Name, d.Terms)
						}
					}
					intruder := asking(pieces("intruder", piece{device: "gpu-01-00", memory: "2Gi"}), "2Gi")
					require.Error(t, "a share with it", errOf(m.Prepare(once(), intruder)), gpu.ErrInUse)
				}
				prepare()
				w.boot++
				for address, g := range w.gpus {
					g.MemoryBytes = after
					w.gpus[address] = g
				}
				prepare()
			})
		}
	}
}

func TestAClaimForLessThanTheWholeMemoryGetsAShare(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, _ := w.restart(t.Context())
	claim := asking(pieces("share", piece{device: "gpu-00-00", memory: "79Gi"}), "79Gi")
	devices, err := m.Prepare(t.Context(), claim)
	must(t, err)
	if d := devices[0]; d.Terms.Memory() != 79<<30 {
		t.Errorf("device %+v, want a share of 79Gi", d)
	}
}

// A container has a whole GPU, shares of another by two claims, and a third GPU. The
// place of the third GPU in the machine is unknown. Its pod has set a variable of the
// same name.
func TestAContainerLearnsThePlaceOfAllItsGPUs(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 3)
	address := gpu.PCIAddress{Bus: 1}
	shared := w.gpus[address]
	shared.NUMANode, shared.CPUs = ptr.To(0), "0-55,112-167"
	shared.NICs = []gpu.NIC{{Address: gpu.PCIAddress{Bus: 0x18}, RDMADevices: []string{"mlx5_0"}}, {Address: gpu.PCIAddress{Bus: 0x19}, RDMADevices: []string{"mlx5_1"}}}
	w.gpus[address] = shared
	address = gpu.PCIAddress{Domain: 8, Bus: 2}
	w.gpus[address] = gpu.GPU{Address: address, UUID: "GPU-8", Minor: 8, MemoryBytes: memory, NUMANode: ptr.To(1), CPUs: "56-111"}

	m, _ := w.restart(t.Context())
	var ids []string
	for _, c := range []*resourceapi.ResourceClaim{
		pieces("a", piece{device: "gpu-01-00", memory: "20Gi"}, piece{device: "gpu-0008-02-00-0"}),
		pieces("b", piece{device: "gpu-01-00", memory: "30Gi"}),
		pieces("c", piece{device: "gpu-02-00"}),
	} {
		devices, err := m.Prepare(t.Context(), c)
		must(t, err)
		for _, d := range devices {
			ids = append(ids, d.CDIDeviceIDs...)
		}
	}
	container := &oci.Spec{Process: &oci.Process{Env: []string{"GPU_CPUS_01_00=0"}}}
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.cdiDir()))
	must(t, err)
	for _, id := range ids {
		if device := cache.GetDevice(id); device == nil {
			t.Fatalf("no CDI device %s", id)
		} else if err := (&cdiapi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{Env: device.ContainerEdits.Env}}).Apply(container); err != nil {
			t.Fatal(err)
		}
	}
	env := slices.DeleteFunc(container.Process.Env, func(s string) bool { return !strings.HasPrefix(s, "GPU_") })
	slices.Sort(env)
	want := []string{
		"GPU_CPUS_0008_02_00_0=56-111",
		"GPU_CPUS_01_00=0-55,112-167",
		"GPU_NICS_01_00=0000:18:00.0,0000:19:00.0",
		"GPU_NUMA_NODE_0008_02_00_0=1",
		"GPU_NUMA_NODE_01_00=0",
		"GPU_RDMA_DEVICES_01_00=mlx5_0,mlx5_1",
	}
	require.Same(t, "environment", want, env)
}

func TestAGPUThatADevicePluginAllocatedIsNotPrepared(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	allocate := func(external ...gpu.ExternalAllocation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conditions = map[gpu.PCIAddress]use.Conditions{{}: {External: external}}
	}
	m, wanted := w.start(), pieces("c", piece{device: "gpu-00-00"})
	allocate(gpu.ExternalAllocation{Device: "GPU-0", Pod: "team/old"})
	require.Error(t, "error", errOf(m.Prepare(once(), wanted)), gpu.ErrInUse, "a device plugin of this node has given it")
	if _, err := m.Prepare(once(), pieces("other", piece{device: "gpu-01-00"})); err != nil {
		t.Errorf("another GPU: %v", err)
	}
	// The external allocation may end while the call waits.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prepared := make(chan error, 1)
	go func() {
		_, err := m.Prepare(ctx, wanted)
		prepared <- err
	}()
	allocate()
	must(t, <-prepared)
	// A prepared claim keeps its GPU.
	allocate(gpu.ExternalAllocation{Device: "GPU-0", Pod: "team/new"})
	if _, err := m.Prepare(once(), wanted); err != nil {
		t.Errorf("the same again: %v", err)
	}
	must(t, m.Unprepare(once(), wanted.UID))
}

// monitor returns a claim for all GPUs with admin access.
func monitor(name string) *resourceapi.ResourceClaim { return admin(newClaim(name, "node-gpus")) }

func admin(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	yes := true
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].AdminAccess = &yes
	}
	return c
}

// nodes renders the device nodes that the claim adds to containers.
func (w *world) nodes(c *resourceapi.ResourceClaim) string {
	w.t.Helper()
	data, err := os.ReadFile(w.specPath(c))
	must(w.t, err)
	var spec specs.Spec
	must(w.t, json.Unmarshal(data, &spec))
	var paths []string
	for _, d := range spec.Devices {
		for _, node := range d.ContainerEdits.DeviceNodes {
			paths = append(paths, node.Path)
		}
	}
	return strings.Join(paths, " ")
}

func TestMonitoringTakesAllGPUsAndExcludesNoClaim(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	// The first GPU has the zero address, like the monitoring device, which is on
	// no GPU.
	w.options = func(o *claim.Options) {
		o.MonitorNodes = func() ([]string, error) { return []string{"/dev/nvidia-caps/nvidia-cap2"}, nil }
	}
	mode(gpu.ComputeModeProhibited)(w)
	m := w.start()
	first, second := monitor("first"), monitor("second")
	got, err := m.Prepare(once(), first)
	must(t, err)
	if len(got) != 1 || got[0].Name.Kind != kind.Monitor || got[0].UUID != "" || got[0].Terms != (share.Terms{}) {
		t.Errorf("devices %+v, want all GPUs and no share of them", got)
	}
	const all = "/dev/nvidia0 /dev/nvidia1 /dev/nvidia-caps/nvidia-cap2"
	if got := w.nodes(first); got != all {
		t.Errorf("containers get %s, want %s", got, all)
	}

	mode(gpu.ComputeModeDefault)(w)
	others := []*resourceapi.ResourceClaim{
		newClaim("whole", "gpu-01-00"),
		pieces("share", piece{device: "gpu-00-00", memory: "20Gi"}),
		second,
	}
	for _, c := range others {
		if _, err := m.Prepare(once(), c); err != nil {
			t.Errorf("%s during monitoring: %v", c.Name, err)
		}
	}
	// In the other order, held GPUs do not exclude monitoring.
	must(t, m.Unprepare(once(), first.UID))
	m, _ = w.restart(t.Context())
	if _, err := m.Prepare(once(), first); err != nil {
		t.Errorf("with other claims: %v", err)
	}
	for _, c := range append(others, first) {
		must(t, m.Unprepare(once(), c.UID))
	}
	wantNothing(t, w.left(m))
}

func TestMonitoringLastsWithTheGPUsThatAnswer(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	c := monitor("agent")
	before, err := w.start().Prepare(once(), c)
	must(t, err)
	delete(w.gpus, gpu.PCIAddress{})
	m, report := w.restart(t.Context())
	if diff := cmp.Diff(claim.Report{Verified: report.Verified}, report); diff != "" || len(report.Verified) != 1 {
		t.Errorf("report %+v, want the claim verified", report)
	}
	if got := w.nodes(c); got != "/dev/nvidia1" {
		t.Errorf("containers get %s, want the GPU that is left", got)
	}
	after, err := m.Prepare(once(), c)
	must(t, err)
	require.Same(t, "devices after a restart", before, after)
	w.gpus = nil
	require.Error(t, "with no GPU to monitor", errOf(m.Prepare(once(), monitor("late"))), gpu.ErrNotReady)
}

// A monitoring claim whose record is lost does not exclude other claims either.
func TestMonitoringWithoutARecordExcludesNoClaim(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), monitor("agent")
	must(t, errOf(m.Prepare(once(), c)))
	must(t, os.Remove(w.recordPath(c)))
	require.Same(t, "held", "team-a/agent Unrecorded node-gpus\n", w.held(m))
	whole := pieces("whole", piece{device: "gpu-00-00", config: interval(gpu.TimeSliceLong)})
	must(t, errOf(m.Prepare(once(), whole)))
	must(t, m.Unprepare(once(), c.UID))
	require.Same(t, "the time slice of another claim", "gpu-00-00 Long\n", w.timeSlices.String())
	must(t, m.Unprepare(once(), whole.UID))
	wantNothing(t, w.left(m))
}

func TestAdminAccessIsForMonitoringAndMonitoringForAdmins(t *testing.T) {
	configured := monitor("configured")
	configured.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{
		opaque(resourceapi.AllocationConfigSourceClaim, driver, config("GpuConfig", ""), ""),
	}
	configured.Status.Allocation.Devices.Config[0].Requests = nil
	for name, tc := range map[string]struct {
		claim *resourceapi.ResourceClaim
		is    error
		says  []string
	}{
		"all GPUs without admin access": {newClaim("plain", "node-gpus"), gpu.ErrInvalid, []string{"device node-gpus", "adminAccess: true", "see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts"}},
		"a GPU with admin access":       {admin(newClaim("whole", "gpu-00-00")), gpu.ErrNotSupported, []string{"device gpu-00-00", "see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts"}},
		"a share with admin access":     {admin(pieces("share", piece{device: "gpu-00-00", memory: "20Gi"})), gpu.ErrNotSupported, []string{"see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts"}},
		"time slices with admin access": {admin(pieces("timeSlices", piece{device: "gpu-00-00-ts"})), gpu.ErrNotSupported, []string{"see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts"}},
		"all GPUs twice":                {admin(newClaim("twice", "node-gpus", "node-gpus")), gpu.ErrInvalid, []string{"allocated twice"}},
		"with a configuration":          {configured, gpu.ErrInvalid, []string{"a GpuConfig cannot configure the monitoring of GPUs"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			wantRefused(t, w.start(), w.left, tc.claim, tc.is, tc.says...)
		})
	}
}
