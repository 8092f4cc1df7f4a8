// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
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
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff("team-a/pair Prepared gpu-01-00 gpu-00-00\n", w.held(m)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(preparedFiles(c), w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.files() + w.held(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
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

func TestUnprepareSucceedsForAnUnknownClaim(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	if err := w.start().Unprepare(t.Context(), "8a5c2f6e-unknown"); err != nil {
		t.Error(err)
	}
	if got := w.files(); got != "" {
		t.Errorf("left behind:\n%s", got)
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
			"remove adminAccess from the request",
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
			if _, err := m.Prepare(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			refused := newClaim("refused", "gpu-00-00")
			c.change(refused)
			devices, err := m.Prepare(once(), refused)
			if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) || len(devices) != 0 {
				t.Errorf("got %v, %v\nwant %v that says %q", devices, err, c.is, c.says)
			}
			if diff := cmp.Diff(preparedFiles(other), w.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
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
	if _, err := m.Prepare(t.Context(), old); err != nil {
		t.Fatal(err)
	}
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
	if _, err := w.start().Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	g := w.gpus[gpu.PCIAddress{}]
	g.Minor = 7
	w.gpus[g.Address] = g
	w.restart(t.Context())
	spec, err := os.ReadFile(w.specPath(c))
	if err != nil || !strings.Contains(string(spec), `"/dev/nvidia7"`) {
		t.Errorf("%v, the spec is still\n%s", err, spec)
	}
}
