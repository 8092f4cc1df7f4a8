// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

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
			if _, err := m.Prepare(once(), c.claim); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.daemons, w.supervisor.String()); diff != "" {
				t.Errorf("daemons (-want +got):\n%s", diff)
			}
			must(t, m.Unprepare(once(), c.claim.UID))
			if got := w.left(m); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}

// A container of one request also counts its devices from 0, so it gets no limits by
// index. A container with all devices has one pipe.
func TestContainersOfRequestsThatAreConfiguredTogether(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 2)
	c := configured([]string{"gpu-01-00", "gpu-00-00"}, opaque(resourceapi.AllocationConfigSourceClaim, driver,
		nvidiaConfig("GpuConfig", `"defaultActiveThreadPercentage":50,"defaultPerDevicePinnedMemoryLimit":{"1":"5Gi"}`)))
	if _, err := w.start().Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	const client = "  CUDA_MPS_PIPE_DIRECTORY=/run/sup/gpu-01-00/pipe\n  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n" +
		"  /run/sup/gpu-01-00/pipe at /run/sup/gpu-01-00/pipe\n  /run/sup/gpu-01-00/shm at /dev/shm\n"
	if diff := cmp.Diff("uid-c-gpu-01-00\n"+client+"uid-c-gpu-00-00\n"+client, w.edits(c)); diff != "" {
		t.Errorf("CDI (-want +got):\n%s", diff)
	}
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
				return
			}
			if err != nil {
				t.Fatal(err)
			}
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
