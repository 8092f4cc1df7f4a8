// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
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

// slotFor returns a claim with one slot of a time-sliced GPU.
func slotFor(name, device string) *resourceapi.ResourceClaim {
	claim := shareFor(name, device, "1", "1")
	claim.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"slots": resource.MustParse("1")}
	return claim
}

// seatsFor returns a claim with seats of a GPU.
func seatsFor(name, device string, seats int64) *resourceapi.ResourceClaim {
	claim := slotFor(name, device)
	claim.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"seats": *resource.NewQuantity(seats, resource.DecimalSI)}
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

func TestAgentHoldsEachShareToItsLimits(t *testing.T) {
	t.Parallel()
	small := shareFor("small", "gpu-1b-00", "10Gi", "25")
	large := with(shareFor("large", "gpu-1b-00", "30Gi", "0"), `"kind":"ShareConfig","processes":2`)
	n := newNode(t, small, large)
	s := n.supervise(t)
	a := n.start(t)
	for _, claim := range []*resourceapi.ResourceClaim{small, large} {
		if got := a.prepare(t, claim)[string(claim.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
	}

	const daemon = "/run/gpu-mps-supervisor/daemons/gpu-1b-00"
	mounted := []string{daemon + "/pipe on " + daemon + "/pipe", daemon + "/shm on /dev/shm"}
	for claim, limits := range map[*resourceapi.ResourceClaim][]string{
		small: {"CUDA_MPS_PIPE_DIRECTORY=" + daemon + "/pipe", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M"},
		// A half of 30 of 79 Gi each, and of the memory less a context.
		large: {"CUDA_MPS_PIPE_DIRECTORY=" + daemon + "/pipe", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=18", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=15360M"},
	} {
		device, got := n.injected(t, claim)
		if want := string(claim.UID) + "-gpu-1b-00_share-" + claim.Name; device != want {
			t.Errorf("CDI device %s, want %s", device, want)
		}
		if diff := cmp.Diff(append(limits, mounted...), got); diff != "" {
			t.Errorf("%s: environment and mounts (-want +got):\n%s", claim.Name, diff)
		}
	}
	if d := s.daemon("gpu-1b-00"); d.ThreadPercentage != 25 || !slices.Equal(d.MemoryLimits, []uint64{15360 << 20}) {
		t.Errorf("the daemon's ceilings are %v, want those of the largest process: 25 percent, 15360Mi", d)
	}
	data := reported(t, n, large)
	if data.Share == nil || data.Share.Strategy != "MPS" || data.Share.Memory.String() != "30Gi" || data.Share.MemoryLimit.String() != "15Gi" ||
		data.Share.Processes != 2 || data.Share.ThreadPercentage != 18 || data.Share.Enforcement != "cooperative" {
		t.Errorf("status.devices says %+v of the share", data.Share)
	}

	if err := a.kubelet.Unprepare(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if d := s.daemon("gpu-1b-00"); !slices.Equal(d.MemoryLimits, []uint64{10240 << 20}) {
		t.Errorf("the daemon's ceilings are %v, want those of the share that is left", d)
	}
	if err := a.kubelet.Unprepare(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if names := s.names(); len(names) != 0 {
		t.Errorf("daemons left behind: %q", names)
	}
	if left := n.left(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
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
	if got := a.prepare(t, small)[string(small.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
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
	if err := a.kubelet.Unprepare(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if left := n.left(t); len(left) != 0 || len(s.names()) != 0 {
		t.Errorf("left behind: %q, %q", left, s.names())
	}
}

// A seat has the MPS daemon of its GPU.
func TestAgentHoldsEachSeatToItsPartOfTheGPU(t *testing.T) {
	t.Parallel()
	one, two := seatsFor("one", "gpu-1b-00-seat", 1), seatsFor("two", "gpu-1b-00-seat", 2)
	n := newNode(t, one, two)
	n.Offer = "share,seat"
	s := n.supervise(t)
	a := n.start(t)
	for _, claim := range []*resourceapi.ResourceClaim{one, two} {
		if got := a.prepare(t, claim)[string(claim.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
	}
	data := reported(t, n, two)
	if data.Share == nil || data.Share.Strategy != "MPS" || data.Share.Compute != 50 {
		t.Fatalf("status.devices says %+v of two of four seats", data.Share)
	}
	seat := data.Share.Memory.Value() >> 20 / 2
	const daemon = "/run/gpu-mps-supervisor/daemons/gpu-1b-00"
	for claim, seats := range map[*resourceapi.ResourceClaim]int64{one: 1, two: 2} {
		want := []string{
			"CUDA_MPS_PIPE_DIRECTORY=" + daemon + "/pipe", fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", 25*seats),
			fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", seats*seat),
			daemon + "/pipe on " + daemon + "/pipe", daemon + "/shm on /dev/shm",
		}
		if _, got := n.injected(t, claim); !slices.Equal(got, want) {
			t.Errorf("%s: environment and mounts (-want +got):\n%s", claim.Name, cmp.Diff(want, got))
		}
	}
	for _, claim := range []*resourceapi.ResourceClaim{one, two} {
		if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if left := n.left(t); len(left) != 0 || len(s.names()) != 0 {
		t.Errorf("left behind: %q, %q", left, s.names())
	}
}

func TestAgentDoesNotCallTheSupervisorWithoutShares(t *testing.T) {
	t.Parallel()
	whole, mig := claimFor("whole", "gpu-1b-00"), claimFor("mig", "gpu-43-00-mig-1g-10gb-0")
	n := newNode(t, whole, mig)
	s := n.supervise(t)
	a := n.start(t)
	for _, claim := range []*resourceapi.ResourceClaim{whole, mig} {
		if got := a.prepare(t, claim)[string(claim.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
		if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if asked := s.asked(); asked != 0 {
		t.Errorf("the supervisor received %d changes", asked)
	}
}

func TestAgentWaitsForASupervisorThatIsAway(t *testing.T) {
	t.Parallel()
	share, whole := shareFor("share", "gpu-1b-00", "10Gi", "0"), claimFor("whole", "gpu-43-00")
	n := newNode(t, share, whole)
	a := n.start(t)
	if got := a.prepare(t, whole)["uid-whole"]; got.Error != "" {
		t.Errorf("a whole GPU needs no supervisor, and yet: %s", got.Error)
	}

	// It may be back soon, so it is waited for as long as the kubelet waits;
	// here less.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	results, err := a.agent.kubelet.now().PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{share})
	if err != nil {
		t.Fatal(err)
	}
	if got := results["uid-share"].Err; !errors.Is(got, gpu.ErrNotReady) || !strings.Contains(got.Error(), "gpu-mps-supervisor does not answer on "+n.Supervisor) {
		t.Errorf("error %v, want %v and who does not answer", got, gpu.ErrNotReady)
	}
	if left := n.left(t); slices.ContainsFunc(left, func(name string) bool { return strings.Contains(name, "uid-share") }) {
		t.Errorf("left of a claim that could not be prepared: %q", left)
	}

	prepared := make(chan string, 1)
	go func() {
		results, err := a.kubelet.Prepare(t.Context(), share)
		if err != nil {
			prepared <- err.Error()
			return
		}
		prepared <- results["uid-share"].Error
	}()
	s := n.supervise(t)
	if failure := <-prepared; failure != "" {
		t.Errorf("not prepared although the supervisor came back: %s", failure)
	}
	if diff := cmp.Diff([]string{"gpu-1b-00"}, s.names()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
}

// Agent and supervisor are upgraded at the same time, say.
func TestASupervisorThatIsAwayHoldsUpNeitherTheStartNorOtherClaims(t *testing.T) {
	t.Parallel()
	share, whole := shareFor("share", "gpu-1b-00", "10Gi", "0"), claimFor("whole", "gpu-43-00")
	n := newNode(t, share, whole)
	s := n.supervise(t)
	a := n.start(t)
	if got := a.prepare(t, share)["uid-share"]; got.Error != "" {
		t.Fatal(got.Error)
	}
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

func TestAgentStopsDaemonsWithoutAClaimWhenItStarts(t *testing.T) {
	t.Parallel()
	claim := shareFor("share", "gpu-1b-00", "10Gi", "0")
	n := newNode(t, claim)
	s := n.supervise(t, "gpu-43-00")
	a := n.start(t)
	if names := s.names(); len(names) != 0 {
		t.Errorf("daemons without a claim still run: %q", names)
	}
	if got := a.prepare(t, claim)["uid-share"]; got.Error != "" {
		t.Fatal(got.Error)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if diff := cmp.Diff([]string{"gpu-1b-00"}, s.names()); diff != "" {
		t.Errorf("daemons after a restart of the agent (-want +got):\n%s", diff)
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
	if got := a.prepare(t, plain)["uid-plain"]; got.Error != "" {
		t.Fatal(got.Error)
	}
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

// timeSlices are the time slices of GPUs.
type timeSlices struct {
	mu     sync.Mutex
	slices map[gpu.PCIAddress]gpu.TimeSlice
}

// TimeSlice implements [ports.TimeSlices].
func (f *timeSlices) TimeSlice(_ context.Context, address gpu.PCIAddress) (gpu.TimeSlice, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slice, ok := f.slices[address]; ok {
		return slice, nil
	}
	return gpu.TimeSliceDefault, nil
}

// SetTimeSlice implements [ports.TimeSlices].
func (f *timeSlices) SetTimeSlice(_ context.Context, address gpu.PCIAddress, slice gpu.TimeSlice) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slices[address] = slice
	return nil
}

func TestAgentPreparesTimeSlicesOfAGPU(t *testing.T) {
	t.Parallel()
	long := `"kind":"GpuConfig","sharing":{"strategy":"TimeSlicing","timeSlicing":{"interval":"Long"}}`
	first, second := with(slotFor("first", "gpu-1b-00-ts"), long), slotFor("second", "gpu-1b-00-ts")
	whole := claimFor("whole", "gpu-1b-00")
	n := newNode(t, first, second, whole)
	hardware := &timeSlices{slices: map[gpu.PCIAddress]gpu.TimeSlice{}}
	n.timeSlices = hardware
	a := n.start(t)
	slice := func() gpu.TimeSlice {
		slice, err := hardware.TimeSlice(t.Context(), gpu.PCIAddress{Bus: 0x1b})
		if err != nil {
			t.Fatal(err)
		}
		return slice
	}
	for _, claim := range []*resourceapi.ResourceClaim{second, first} {
		if got := a.prepare(t, claim)[string(claim.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
	}
	if got := slice(); got != gpu.TimeSliceLong {
		t.Errorf("time slice %s, want %s", got, gpu.TimeSliceLong)
	}
	if data := reported(t, n, first); data.Share == nil || data.Share.Strategy != "TimeSlicing" || data.Share.TimeSlice != v1alpha1.IntervalLong {
		t.Errorf("status.devices says %+v of the share", data.Share)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	results, err := a.agent.kubelet.now().PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{whole})
	if err != nil {
		t.Fatal(err)
	}
	if got := results["uid-whole"].Err; !errors.Is(got, gpu.ErrInUse) {
		t.Errorf("the whole of a time-sliced GPU: error %v, want %v", got, gpu.ErrInUse)
	}
	for _, claim := range []*resourceapi.ResourceClaim{first, second} {
		if err := a.kubelet.Unprepare(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if got := slice(); got != gpu.TimeSliceDefault {
		t.Errorf("time slice %s after the last claim, want %s", got, gpu.TimeSliceDefault)
	}
	if left := n.left(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
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

func TestAgentMakesAGPUWithMPSSharesExclusive(t *testing.T) {
	t.Parallel()
	first, second := shareFor("first", "gpu-1b-00", "10Gi", "25"), shareFor("second", "gpu-1b-00", "10Gi", "25")
	unlimited := with(shareFor("unlimited", "gpu-1b-00", "10Gi", "0"), `"kind":"ShareConfig","strategy":"Plain"`)
	n := newNode(t, first, second, unlimited)
	n.ExclusiveCompute = true
	n.supervise(t)
	a := n.start(t)
	mode := func() string {
		t.Helper()
		sim, err := nvmlsim.Open(n.SimState)
		if err != nil {
			t.Fatal(err)
		}
		v, err := sim.View()
		if err != nil {
			t.Fatal(err)
		}
		return v.GPUs[0].ComputeMode
	}
	for _, claim := range []*resourceapi.ResourceClaim{first, second} {
		if got := a.prepare(t, claim)[string(claim.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
		if got := mode(); got != "ExclusiveProcess" {
			t.Errorf("the compute mode is %s with the share %s", got, claim.Name)
		}
	}
	if got := a.prepare(t, unlimited)["uid-unlimited"]; !strings.Contains(got.Error, "--exclusive-compute") {
		t.Errorf("error %q, want it to name the cause and a document", got.Error)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	// An agent without the setting sets the mode back with the last share.
	n.ExclusiveCompute = false
	a = n.start(t)
	for _, device := range n.published(t)[0].Spec.Devices {
		if len(device.Taints) > 0 {
			t.Errorf("%s is published with the taints %v", device.Name, device.Taints)
		}
	}
	for _, end := range []struct {
		claim *resourceapi.ResourceClaim
		want  string
	}{{first, "ExclusiveProcess"}, {second, "Default"}} {
		if err := a.kubelet.Unprepare(t.Context(), end.claim); err != nil {
			t.Fatal(err)
		}
		if got := mode(); got != end.want {
			t.Errorf("the compute mode is %s after the share %s, want %s", got, end.claim.Name, end.want)
		}
	}
	if left := n.left(t); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}
