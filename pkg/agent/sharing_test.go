// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// shareFor is a claim with a share of a device, as the scheduler allocates it.
func shareFor(name, device, memory, compute string) *resourceapi.ResourceClaim {
	claim := claimFor(name, device)
	share := types.UID("share-" + name)
	result := &claim.Status.Allocation.Devices.Results[0]
	result.ShareID = &share
	result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
		"memory": resource.MustParse(memory), "compute": resource.MustParse(compute),
	}
	return claim
}

// with adds a configuration to the claim.
func with(claim *resourceapi.ResourceClaim, config string) *resourceapi.ResourceClaim {
	claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver:     "gpu.nvidia.com",
			Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"gpu.nvidia.com/v1alpha1",` + config + `}`)},
		}},
	}}
	return claim
}

// injected returns the CDI edits of the only device of a claim: the environment,
// without the place of the GPU, which every device has, and the mounts.
func (n *node) injected(t *testing.T, claim *resourceapi.ResourceClaim) (device string, lines []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.CDIDir, "gpu.nvidia.com-claim-"+string(claim.UID)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Devices) != 1 {
		t.Fatalf("%d devices in the spec of %s, want 1", len(spec.Devices), claim.Name)
	}
	edits := spec.Devices[0].ContainerEdits
	lines = slices.DeleteFunc(slices.Clone(edits.Env), func(s string) bool { return strings.HasPrefix(s, "GPU_") })
	if len(edits.Env)-len(lines) != len([]string{"GPU_NUMA_NODE", "GPU_CPUS", "GPU_NICS", "GPU_RDMA_DEVICES"}) {
		t.Errorf("claim %s has the environment %q, want the whole place of its GPU", claim.Name, edits.Env)
	}
	for _, m := range edits.Mounts {
		lines = append(lines, m.HostPath+" on "+m.ContainerPath)
	}
	return spec.Devices[0].Name, lines
}

// reported is what the claim's status says of its one device.
func reported(t *testing.T, n *node, claim *resourceapi.ResourceClaim) v1alpha1.DeviceData {
	t.Helper()
	watcher, err := n.client.ResourceV1().ResourceClaims(claim.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	object, err := n.client.ResourceV1().ResourceClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for len(object.Status.Devices) == 0 {
		if event := <-watcher.ResultChan(); event.Type == watch.Modified {
			if changed, ok := event.Object.(*resourceapi.ResourceClaim); ok && changed.UID == claim.UID {
				object = changed
			}
		}
	}
	var data v1alpha1.DeviceData
	if err := json.Unmarshal(object.Status.Devices[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAgentHoldsEachShareByANamespaceOfItsDaemon(t *testing.T) {
	t.Parallel()
	small := shareFor("small", "gpu-1b-00", "10Gi", "25")
	n := newNode(t, small)
	n.Attributes = kind.Selection{Level: kind.LevelAll}
	s := n.supervise(t)
	s.setNamespaces(true)
	a := n.start(t)
	for _, slice := range n.published(t) {
		for _, d := range slice.Spec.Devices {
			if got := d.Attributes["computeEnforcement"].StringValue; d.Name == "gpu-1b-00" && (got == nil || *got != "daemon") {
				t.Errorf("published attributes %v, want computeEnforcement to be daemon", d.Attributes)
			}
		}
	}
	a.mustPrepare(t, small)
	const daemon = "/run/gpu-mps-supervisor/daemons/gpu-1b-00"
	want := []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + daemon + "/pipe/s/sharesmall", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
		daemon + "/pipe/s/sharesmall on " + daemon + "/pipe/s/sharesmall", daemon + "/shm on /dev/shm",
	}
	if _, got := n.injected(t, small); !slices.Equal(got, want) {
		t.Errorf("environment and mounts (-want +got):\n%s", cmp.Diff(want, got))
	}
	if all := s.daemon("gpu-1b-00").Namespaces; len(all) != 1 || all[0].Name != "sharesmall" || all[0].ThreadPercentage != 25 || all[0].MemoryLimit != 10240<<20 {
		t.Errorf("namespaces %v, want one with the limits of the share", all)
	}
	if data := reported(t, n, small); data.Share == nil || data.Share.ComputeEnforcement != "daemon" {
		t.Errorf("status.devices says %+v of the share", data.Share)
	}
	a.unprepare(t, small)
	if left := n.left(t); len(left) != 0 || len(s.names()) != 0 {
		t.Errorf("left behind: %q, %q", left, s.names())
	}
}

// Agent and supervisor are upgraded at the same time, say.
func TestASupervisorThatIsAwayHoldsUpNeitherTheStartNorOtherClaims(t *testing.T) {
	t.Parallel()
	share, whole := shareFor("share", "gpu-1b-00", "10Gi", "0"), claimFor("whole", "gpu-43-00")
	n := newNode(t, share, whole)
	s := n.supervise(t)
	a := n.start(t)
	a.mustPrepare(t, share)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	s.stop()

	b := n.start(t)
	if got := b.prepare(t, whole)["uid-whole"]; got.Error != "" {
		t.Errorf("a whole GPU: %s", got.Error)
	}
	if err := b.kubelet.Unprepare(t.Context(), share); err == nil || !strings.Contains(err.Error(), "gpu-mps-supervisor does not answer") {
		t.Errorf("unprepare without the supervisor: %v, want an error that says so: the daemon runs on", err)
	}
	back := n.supervise(t, "gpu-1b-00")
	// The kubelet retries until the client has connected to the supervisor again.
	for err := b.kubelet.Unprepare(t.Context(), share); err != nil; err = b.kubelet.Unprepare(t.Context(), share) {
		if t.Context().Err() != nil {
			t.Fatalf("unprepare with the supervisor back: %v", err)
		}
	}
	if names := back.names(); len(names) != 0 {
		t.Errorf("daemons left behind: %q", names)
	}
}

func TestSharesOfANodeWithoutASupervisorArePlain(t *testing.T) {
	t.Parallel()
	plain := shareFor("plain", "gpu-1b-00", "10Gi", "0")
	mps := with(shareFor("mps", "gpu-1b-00", "10Gi", "0"), `"kind":"ShareConfig","strategy":"MPS"`)
	n := newNode(t, plain, mps)
	n.Attributes = kind.Selection{Level: kind.LevelAll}
	n.Supervisor = ""
	a := n.start(t)
	for _, device := range n.published(t)[0].Spec.Devices {
		if sharing := device.Attributes["sharing"]; sharing.StringValue == nil || *sharing.StringValue != "none" {
			t.Errorf("%s is published with sharing=%v, want none", device.Name, sharing)
		}
	}
	a.mustPrepare(t, plain)
	if _, lines := n.injected(t, plain); len(lines) != 0 {
		t.Errorf("a plain share brings %q", lines)
	}
	if data := reported(t, n, plain); data.Share == nil || data.Share.Strategy != "Plain" || data.Share.Enforcement != "none" {
		t.Errorf("status.devices says %+v of the share", data.Share)
	}
	if got := a.prepare(t, mps)["uid-mps"]; !strings.Contains(got.Error, "no MPS daemons run on this node; see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md") {
		t.Errorf("error %q, want it to name the cause and a document", got.Error)
	}
}

func TestTimeSlicesOfRealGPUsAreTheDriversProgramsToChange(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	hw := openHardware(&Config{DriverRoot: root})
	if _, err := hw.timeSlices.TimeSlice(t.Context(), gpu.PCIAddress{Bus: 0x1a}); err == nil || !strings.Contains(err.Error(), "find nvidia-smi below driver root "+root) {
		t.Errorf("error %v, want one that says that the driver has no nvidia-smi", err)
	}
}
