// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/share"
)

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
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		w.t.Fatalf("%v", err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestMonitoringLastsWithTheGPUsThatAnswer(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	c := monitor("agent")
	before, err := w.start().Prepare(once(), c)
	if err != nil {
		t.Fatal(err)
	}
	delete(w.gpus, gpu.PCIAddress{})
	m, report := w.restart(t.Context())
	if diff := cmp.Diff(claim.Report{Verified: report.Verified}, report); diff != "" || len(report.Verified) != 1 {
		t.Errorf("report %+v, want the claim verified", report)
	}
	if got := w.nodes(c); got != "/dev/nvidia1" {
		t.Errorf("containers get %s, want the GPU that is left", got)
	}
	after, err := m.Prepare(once(), c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("devices after a restart (-before +after):\n%s", diff)
	}
	w.gpus = nil
	if _, err := m.Prepare(once(), monitor("late")); !errors.Is(err, gpu.ErrNotReady) {
		t.Errorf("with no GPU to monitor: %v, want %v", err, gpu.ErrNotReady)
	}
}

// A monitoring claim whose record is lost does not exclude other claims either.
func TestMonitoringWithoutARecordExcludesNoClaim(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	m, c := w.start(), monitor("agent")
	if _, err := m.Prepare(once(), c); err != nil {
		t.Fatal(err)
	}
	must(t, os.Remove(w.recordPath(c)))
	if diff := cmp.Diff("team-a/agent Unrecorded node-gpus\n", w.held(m)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	whole := pieces("whole", piece{device: "gpu-00-00", config: interval(gpu.TimeSliceLong)})
	if _, err := m.Prepare(once(), whole); err != nil {
		t.Fatal(err)
	}
	must(t, m.Unprepare(once(), c.UID))
	if diff := cmp.Diff("gpu-00-00 Long\n", w.timeSlices.String()); diff != "" {
		t.Errorf("the time slice of another claim (-want +got):\n%s", diff)
	}
	must(t, m.Unprepare(once(), whole.UID))
	if got := w.left(m); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
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
		"all GPUs without admin access": {newClaim("plain", "node-gpus"), gpu.ErrInvalid, []string{"device node-gpus", "adminAccess: true", "resource.kubernetes.io/admin-access=true"}},
		"a GPU with admin access":       {admin(newClaim("whole", "gpu-00-00")), gpu.ErrNotSupported, []string{"device gpu-00-00", "class monitor.nvidia.com"}},
		"a share with admin access":     {admin(pieces("share", piece{device: "gpu-00-00", memory: "20Gi"})), gpu.ErrNotSupported, []string{"class monitor.nvidia.com"}},
		"time slices with admin access": {admin(pieces("timeSlices", piece{device: "gpu-00-00-ts"})), gpu.ErrNotSupported, []string{"class monitor.nvidia.com"}},
		"all GPUs twice":                {admin(newClaim("twice", "node-gpus", "node-gpus")), gpu.ErrInvalid, []string{"allocated twice"}},
		"with a configuration":          {configured, gpu.ErrInvalid, []string{"a GpuConfig cannot configure the monitoring of GPUs"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			m := w.start()
			_, err := m.Prepare(once(), tc.claim)
			if !errors.Is(err, tc.is) {
				t.Fatalf("error %v, want %v", err, tc.is)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if got := w.left(m); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}
