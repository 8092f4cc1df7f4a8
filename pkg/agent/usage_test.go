// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
	"github.com/gpu-dra/gpu-dra-driver/pkg/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/usage"
)

const gibi = 1 << 30

// The first two GPUs of the model dgx-h100-r615.
var firstGPU, secondGPU = gpu.PCIAddress{Bus: 0x1b}, gpu.PCIAddress{Bus: 0x43}

// podUID returns the UID of a pod with a number, as the API server makes them.
func podUID(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// tasks is a proc of processes that need not run.
type tasks struct {
	testing.TB
	procfs.Root
}

func newTasks(t testing.TB) tasks {
	t.Helper()
	p := tasks{t, procfs.Root(t.TempDir())}
	p.self()
	return p
}

// driverFolder is the agent's folder as the tests' processes see it.
const driverFolder = "/var/lib/kubelet/plugins/gpu.nvidia.com"

// self adds the reading process.
func (p tasks) self() {
	p.Helper()
	dir := filepath.Join(string(p.Root), "proc", "self")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "mountinfo"), []byte("1 0 254:1 / / rw - ext4 /dev/vda1 rw\n"), 0o600)); err != nil {
		p.Fatal(err)
	}
}

// mounts adds the metadata file of a claim to the mounts of a process.
func (p tasks) mounts(pid int, claim string) {
	p.Helper()
	name := filepath.Join(string(p.Root), "proc", strconv.Itoa(pid), "mountinfo")
	before, err := os.ReadFile(name)
	if err == nil {
		line := "802 800 254:1 " + driverFolder + "/dra-device-metadata/team_" + claim + "/gpu/metadata.json /var/run/kubernetes.io/x rw - ext4 /dev/vda1 rw\n"
		err = os.WriteFile(name, append(before, line...), 0o600)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// add adds a process of a container, as the kernel shows it.
func (p tasks) add(pid int, pod types.UID, id, container string) {
	p.Helper()
	dir := filepath.Join(string(p.Root), "proc", strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.Fatal(err)
	}
	for name, content := range map[string]string{
		"stat":      fmt.Sprintf("%d (python) S 1%s 7\n", pid, strings.Repeat(" 0", 17)),
		"status":    "Name:\tpython\nNSpid:\t" + strconv.Itoa(pid) + "\t1\n",
		"cgroup":    "0::/kubepods/pod" + string(pod) + "/" + id + "\n",
		"mountinfo": "800 799 0:50 / / rw - overlay overlay rw\n801 800 254:1 /var/lib/kubelet/pods/" + string(pod) + "/containers/" + container + "/1f2e3d4c /dev/termination-log rw - ext4 /dev/vda1 rw\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			p.Fatal(err)
		}
	}
}

// usageNode is a simulated node with limited containers.
type usageNode struct {
	testing.TB
	usageReader
	tasks  tasks
	sim    *nvmlsim.Sim
	driver *observedDriver
	claims *heldClaims
	// made is the number of containers, each of a pod.
	made int
}

// heldClaims are the claims of a test.
type heldClaims struct {
	held    []claim.Held
	limited []claim.Limited
}

func (c *heldClaims) Held(context.Context) ([]claim.Held, error) { return slices.Clone(c.held), nil }

func (c *heldClaims) Limited(context.Context) ([]claim.Limited, error) { return c.limited, nil }

func newUsageNode(t testing.TB, model string) *usageNode {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), m)
	if err != nil {
		t.Fatal(err)
	}
	n := &usageNode{TB: t, sim: sim, tasks: newTasks(t), claims: &heldClaims{}, driver: &observedDriver{Library: nvml.New(sim.NVML())}}
	n.usageReader = usageReader{
		claims: n.claims, folder: limits.Folder(t.TempDir()), gpus: n.driver, proc: n.tasks.Root,
		pods:       newPodNames(clock.RealClock{}, func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) { return nil, nil }, consumers(n.tasks.Root, driverFolder)),
		containers: &containerNames{proc: n.tasks.Root}, node: func() usage.Node { return usage.Node{} }, clock: clock.RealClock{},
	}
	return n
}

// observedDriver counts the calls for the first GPU.
type observedDriver struct {
	*nvml.Library
	calls int
	// during is called at the end of each call, if it is set.
	during func()
}

func (d *observedDriver) MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error) {
	if address == firstGPU {
		d.calls++
	}
	if d.during != nil {
		defer d.during()
	}
	return d.Library.MemoryLimit(ctx, address, folder)
}

// hold adds a claim of a pod with a share of a GPU that the driver limits.
func (n *usageNode) hold(name string, address gpu.PCIAddress, pods ...types.UID) claim.Limited {
	n.Helper()
	device := claim.Device{
		Name: kind.Whole(address), UUID: "GPU",
		Terms: share.Terms{Share: &share.Amount{Memory: 40 * gibi}, Limit: &share.Limit{Memory: 40 * gibi, Containers: 1}},
	}
	ref := claim.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}
	n.claims.held = append(n.claims.held, claim.Held{Ref: ref, Phase: claim.Prepared, Pods: pods, Devices: []claim.Device{device}})
	l := claim.Limited{Claim: ref, Device: kind.Whole(address), ID: name}
	n.claims.limited = append(n.claims.limited, l)
	if err := n.folder.Open(l.ID); err != nil {
		n.Fatal(err)
	}
	return l
}

// container makes the cgroup of a container of a new pod.
func (n *usageNode) container(name string) (folder string, pod types.UID) {
	n.Helper()
	n.made++
	pod = podUID(n.made)
	return cgrouptest.Child(n, cgrouptest.Child(n, cgrouptest.New(n), "pod"+string(pod)), name), pod
}

// admit limits a container as the hook does.
func (n *usageNode) admit(l claim.Limited, folder string, bytes uint64) {
	n.Helper()
	id, err := cgroup.Lookup(folder)
	if err != nil {
		n.Fatal(err)
	}
	sum, err := n.folder.Admit(l.ID, limits.Limit{Cgroup: folder, ID: id, GPU: l.Device.Address.String(), Bytes: bytes}, 8)
	if err == nil {
		err = n.driver.SetMemoryLimit(n.Context(), l.Device.Address, folder, sum)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// compute starts a process of the container that uses memory of a GPU.
func (n *usageNode) compute(index int, folder string, bytes uint64) (pid int) {
	n.Helper()
	pid = cgrouptest.Process(n, folder)
	pod, id := procfs.ContainerOf(folder)
	n.tasks.add(pid, types.UID(pod), id, "name-of-"+id)
	ids, err := cgroup.Ancestry(pid)
	if err == nil {
		err = n.sim.AddProcess(index, nvmlsim.Process{PID: pid, MemoryBytes: bytes, Cgroups: ids})
	}
	if err != nil {
		n.Fatal(err)
	}
	return pid
}

func (n *usageNode) want(err error, want ...string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Second)
	defer cancel()
	report, got := n.read(ctx)
	if diff := cmp.Diff(want, uses(report)); !errors.Is(got, err) || diff != "" {
		n.Errorf("error %v, want %v (-want +got):\n%s", got, err, diff)
	}
}

// uses renders the rows of containers, with memory in GiB.
func uses(r agentv1.Report) (lines []string) {
	for _, row := range r.Rows {
		if row.Container == "" {
			continue
		}
		line := fmt.Sprintf("%s %s/%s", row.Claim, row.Pod, row.Container)
		if row.MemoryUsedBytes != nil {
			line += fmt.Sprintf(" used %d", *row.MemoryUsedBytes/gibi)
		}
		if row.MemoryLimitBytes != nil {
			line += fmt.Sprintf(" of %d", *row.MemoryLimitBytes/gibi)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestTheMemoryOfEachLimitedContainer(t *testing.T) {
	n := newUsageNode(t, "dgx-h100-r615")
	first, firstPod := n.container("first")
	ended, endedPod := n.container("ended")
	second, secondPod := n.container("second")
	l := n.hold("share", firstGPU, firstPod, secondPod, endedPod)
	n.compute(0, first, 3*gibi)
	n.compute(0, first, 4*gibi)
	ends := n.compute(0, ended, gibi)
	n.compute(0, second, gibi)
	n.admit(l, first, 10*gibi)
	n.admit(l, ended, 2*gibi)
	n.admit(l, second, 20*gibi)
	a, b, c := fmt.Sprintf("share %s/name-of-first used 7 of 10", firstPod), fmt.Sprintf("share %s/name-of-ended used 1 of 2", endedPod), fmt.Sprintf("share %s/name-of-second used 1 of 20", secondPod)
	n.want(nil, a, b, c)

	if err := n.sim.RemoveProcess(ends); err != nil {
		t.Fatal(err)
	}
	n.driver.during = sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(filepath.Dir(ended), "cgroup.procs"), fmt.Append(nil, ends), 0o600); err != nil {
			t.Error(err)
		}
	})
	n.want(nil, a, c)
	if err := n.folder.Close(l.ID); err != nil {
		t.Fatal(err)
	}
	n.want(nil, strings.TrimSuffix(a, " of 10"), strings.TrimSuffix(c, " of 20"))
}

func TestTheDriverIsCalledOnceForAContainerWithSeveralClaims(t *testing.T) {
	n := newUsageNode(t, "dgx-h100-r615")
	folder, pod := n.container("both")
	n.compute(0, folder, 3*gibi)
	n.admit(n.hold("one", firstGPU, pod), folder, 2*gibi)
	n.admit(n.hold("two", firstGPU, pod), folder, 4*gibi)
	n.want(nil, fmt.Sprintf("one %s/name-of-both used 1 of 2", pod), fmt.Sprintf("two %s/name-of-both used 2 of 4", pod))
	if n.driver.calls != 1 {
		t.Errorf("%d calls into the driver, want 1", n.driver.calls)
	}
}

func TestAGPUThatHangsHidesNoContainerOfAnother(t *testing.T) {
	n := newUsageNode(t, "dgx-h100-r615")
	good, goodPod := n.container("good")
	bad, badPod := n.container("bad")
	n.compute(0, good, gibi)
	n.compute(1, bad, gibi)
	n.admit(n.hold("good", firstGPU, goodPod), good, 2*gibi)
	n.admit(n.hold("bad", secondGPU, badPod), bad, 2*gibi)
	if err := n.sim.HangGPU(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.sim.ClearFaults() })
	n.want(gpu.ErrTimeout, fmt.Sprintf("good %s/name-of-good used 1 of 2", goodPod))
}

func TestAContainerWhoseLimitCannotBeRead(t *testing.T) {
	n := newUsageNode(t, "dgx-h100-r615")
	folder, pod := n.container("c")
	l := n.hold("share", firstGPU, pod)
	n.compute(0, folder, gibi)
	n.admit(l, folder, 2*gibi)
	if err := os.WriteFile(filepath.Join(string(n.folder), l.ID, "0"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.want(gpu.ErrCorrupt, fmt.Sprintf("share %s/name-of-c used 1 of 2", pod))
}

// ofClass makes the claim one for a request of the class, which pods use.
func ofClass(class string, c *resourceapi.ResourceClaim, pods ...int) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if memory, named := c.Status.Allocation.Devices.Results[0].ConsumedCapacity["memory"]; named {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": memory}}
	}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	for _, n := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprintf("pod-%d", n), UID: podUID(n)})
	}
	return c
}

// publishes waits until the agent has its own slices.
func (r *running) publishes(t *testing.T) {
	t.Helper()
	changed, cancel := r.controller.Subscribe()
	defer cancel()
	for len(r.controller.Capacities()) == 0 {
		<-changed
	}
}

var uuidLabel = regexp.MustCompile(`uuid="(GPU|MIG)-[0-9a-f-]{36}"`)

// metricsOf returns the lines of the claims' metrics, with "GPU" and "MIG" as UUIDs.
func metricsOf(t *testing.T, handler http.Handler) []string {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(recorder.Body.String()) {
		if name, found := strings.CutPrefix(line, "gpu_dra_claim_"); found {
			lines = append(lines, uuidLabel.ReplaceAllString(strings.TrimSpace(name), `uuid="$1"`))
		}
	}
	return lines
}

// sample returns the line of a metric of a claim with what it has in GiB or ratios.
func sample(metric, claim, device, uuid, enforcement, pod, container string, value float64) string {
	if strings.HasSuffix(metric, "_bytes") {
		value *= gibi
	}
	return fmt.Sprintf(`%s{claim=%q,container=%q,device=%q,enforcement=%q,namespace="team",pod=%q,uuid=%q} %s`, metric, claim, container, device, enforcement, pod, uuid, strconv.FormatFloat(value, 'g', -1, 64))
}

func TestTheMetricsHaveWhatContainersAllocate(t *testing.T) {
	t.Parallel()
	whole := ofClass("gpu.nvidia.com", claimFor("whole", "gpu-43-00"), 1)
	mig := ofClass("mig.nvidia.com", claimFor("mig", "gpu-1b-00-mig-1g-10gb-2"), 2)
	share := ofClass("mps.nvidia.com", shareFor("share", "gpu-52-00", "10Gi", "25"), 3)
	both := ofClass("mps.nvidia.com", with(shareFor("both", "gpu-52-00", "20Gi", "0"), `"kind":"ShareConfig","processes":2`), 4, 5)
	slot, idle := ofClass("timeslice.nvidia.com", slotFor("slot", "gpu-61-00-ts"), 6), ofClass("timeslice.nvidia.com", slotFor("idle", "gpu-61-00-ts"), 7)
	n := newNode(t, whole, mig, share, both, slot, idle)
	n.nameSlices(t)
	n.Offer = catalog.Offer{Share: true, MIG: true, TimeSlice: true}
	n.supervise(t)
	a := n.start(t)
	a.publishes(t)
	for _, c := range []*resourceapi.ResourceClaim{whole, mig, share, both, slot, idle} {
		if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
	}
	// A pod that joined the claim later, without a call of the kubelet.
	joined := ofClass("mps.nvidia.com", both.DeepCopy(), 8)
	if _, err := n.client.ResourceV1().ResourceClaims("team").Update(t.Context(), joined, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	proc := newTasks(t)
	a.usage.proc, a.usage.containers = proc.Root, &containerNames{proc: proc.Root}
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []struct {
		gpu, pod  int
		container string
		nvmlsim.Process
	}{
		{1, 1, "main", nvmlsim.Process{MemoryBytes: 3 * gibi, SMPercent: 25}},
		{1, 1, "main", nvmlsim.Process{MemoryBytes: 4 * gibi, SMPercent: 50}},
		{1, 1, "side", nvmlsim.Process{MemoryBytes: 5 * gibi}},
		{0, 2, "main", nvmlsim.Process{MemoryBytes: 6 * gibi, Device: n.uuids(t)[0]}},
		{2, 3, "main", nvmlsim.Process{MemoryBytes: 7 * gibi, MPSClient: true}},
		{2, 4, "one", nvmlsim.Process{MemoryBytes: 1 * gibi, MPSClient: true, SMPercent: 10}},
		{2, 5, "two", nvmlsim.Process{MemoryBytes: 2 * gibi, MPSClient: true}},
		{2, 8, "late", nvmlsim.Process{MemoryBytes: 3 * gibi, MPSClient: true}},
		{3, 6, "main", nvmlsim.Process{MemoryBytes: 30 * gibi, SMPercent: 100}},
	} {
		p.PID = 1000000 + i
		proc.add(p.PID, podUID(p.pod), fmt.Sprintf("id%d", p.PID), p.container)
		if err := sim.AddProcess(p.gpu, p.Process); err != nil {
			t.Fatal(err)
		}
	}
	all := 80944. / 1024
	want := []string{
		sample("compute_promised_ratio", "both", "gpu-52-00", "GPU", "cooperative", "", "", 0),
		sample("compute_promised_ratio", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("compute_promised_ratio", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 16./132),
		sample("compute_promised_ratio", "share", "gpu-52-00", "GPU", "cooperative", "", "", .25),
		sample("compute_promised_ratio", "slot", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("compute_promised_ratio", "whole", "gpu-43-00", "GPU", "hardware", "", "", 1),
		sample("healthy", "both", "gpu-52-00", "GPU", "cooperative", "", "", 1),
		sample("healthy", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 1),
		sample("healthy", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 1),
		sample("healthy", "share", "gpu-52-00", "GPU", "cooperative", "", "", 1),
		sample("healthy", "slot", "gpu-61-00-ts", "GPU", "none", "", "", 1),
		sample("healthy", "whole", "gpu-43-00", "GPU", "hardware", "", "", 1),
		sample("memory_limit_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 9920./1024),
		sample("memory_limit_bytes", "whole", "gpu-43-00", "GPU", "hardware", "", "", all),
		sample("memory_promised_bytes", "both", "gpu-52-00", "GPU", "cooperative", "", "", 20),
		sample("memory_promised_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 9920./1024),
		sample("memory_promised_bytes", "share", "gpu-52-00", "GPU", "cooperative", "", "", 10),
		sample("memory_promised_bytes", "whole", "gpu-43-00", "GPU", "hardware", "", "", all),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-4", "one", 1),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-5", "two", 2),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-8", "late", 3),
		sample("memory_used_bytes", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("memory_used_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "pod-2", "main", 6),
		sample("memory_used_bytes", "share", "gpu-52-00", "GPU", "cooperative", "pod-3", "main", 7),
		sample("memory_used_bytes", "slot", "gpu-61-00-ts", "GPU", "none", "pod-6", "main", 30),
		sample("memory_used_bytes", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "main", 7),
		sample("memory_used_bytes", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "side", 5),
		"rows_invalid 0",
		"rows_omitted 0",
		sample("sm_used_ratio", "both", "gpu-52-00", "GPU", "cooperative", "pod-4", "one", .1),
		sample("sm_used_ratio", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("sm_used_ratio", "slot", "gpu-61-00-ts", "GPU", "none", "pod-6", "main", 1),
		sample("sm_used_ratio", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "main", .75),
		sample("sm_used_ratio", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "side", 0),
	}
	got := metricsOf(t, a.handler())
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// After a restart the class is in the record, and a gap is not charged.
func TestTimeIsChargedToTheClassAfterARestart(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
	account := usage.Account{Namespace: "team", Class: "gpu.nvidia.com"}
	grows := func(a *running) float64 {
		t.Helper()
		first := a.accrue()[account]
		for {
			switch next := a.accrue(); {
			case next[account] > first && len(next) == 1:
				return first
			case t.Context().Err() != nil || len(next) > 1:
				t.Fatalf("%v, want more than %v seconds of %+v", next, first, account)
			}
		}
	}
	before := grows(a)
	n.mustStop(t, a)
	a = n.start(t)
	a.publishes(t)
	if after := grows(a); after > before+10 {
		t.Errorf("%v seconds after the restart, %v before", after, before)
	}
	if err := a.kubelet.Unprepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ended := a.accrue()[account]
	if again := a.accrue()[account]; again != ended {
		t.Errorf("%v seconds, and then %v of a claim that has ended", ended, again)
	}
}

func TestNamesOfPods(t *testing.T) {
	t.Parallel()
	ref := claim.Ref{Namespace: "team", Name: "one", UID: "uid-one"}
	held := []claim.Held{{Ref: ref, Pods: []types.UID{podUID(1)}, Devices: []claim.Device{{Name: kind.Whole(firstGPU)}}}}
	object := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	now, reads, passes := testingclock.NewFakePassiveClock(time.Unix(1000, 0)), 0, 0
	var unanswered error
	var group map[types.UID][]types.UID
	p := newPodNames(now, func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) {
		reads++
		return object, unanswered
	}, func([]claim.Ref) (map[types.UID][]types.UID, error) {
		passes++
		return group, nil
	})
	want := func(wantReads int, wantErr error, seen []types.UID, names map[types.UID]string) {
		t.Helper()
		got, err := p.of(t.Context(), held, map[gpu.PCIAddress][]types.UID{firstGPU: seen})
		if diff := cmp.Diff(names, got["uid-one"]); !errors.Is(err, wantErr) || reads != wantReads || diff != "" {
			t.Errorf("%d reads, want %d; %v, want %v (-want +got):\n%s", reads, wantReads, err, wantErr, diff)
		}
	}
	one, both := map[types.UID]string{podUID(1): "pod-1"}, map[types.UID]string{podUID(1): "pod-1", podUID(2): "pod-2"}
	unanswered = gpu.ErrTimeout
	want(1, gpu.ErrTimeout, []types.UID{podUID(1)}, nil)
	unanswered = nil
	want(1, nil, []types.UID{podUID(1)}, nil) // no retry so soon
	now.SetTime(now.Now().Add(podNamesPause))
	want(2, nil, []types.UID{podUID(1)}, one)
	want(3, nil, []types.UID{podUID(1), podUID(3)}, one) // of no claim
	want(3, nil, []types.UID{podUID(1), podUID(3)}, one)
	object = ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1, 2) // a pod joins
	want(4, nil, []types.UID{podUID(1), podUID(2), podUID(3)}, both)
	// A pod that only the kernel shows, as one of a PodGroup.
	group = map[types.UID][]types.UID{"uid-one": {podUID(4)}}
	withGroup := map[types.UID]string{podUID(1): "pod-1", podUID(2): "pod-2", podUID(4): ""}
	before := passes
	for range 3 {
		want(5, nil, []types.UID{podUID(1), podUID(2), podUID(3), podUID(4)}, withGroup)
	}
	if passes != before+1 {
		t.Errorf("%d passes over the processes for one new pod, want 1", passes-before)
	}
	group = nil
	now.SetTime(now.Now().Add(podNamesPause))
	want(5, nil, []types.UID{podUID(3)}, both) // the stranger is read again, the group's pod has ended
	p.observe(ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1))
	want(5, nil, nil, one)
	held = nil
	want(5, nil, nil, nil)
	held = []claim.Held{{Ref: ref}}
	want(5, nil, nil, nil)
}

func TestAClaimPaysFromItsPreparationToItsRelease(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	paid := accounts{a.pods, usage.NewMeter(now), a.chargedNode}
	passes := func() { now.SetTime(now.Now().Add(time.Minute)) }
	passes()
	devices, err := a.claims.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	paid.Held(c, devices)
	passes()
	paid.Released(c.UID)
	passes()
	if diff := cmp.Diff(map[usage.Account]float64{{Namespace: "team", Class: "gpu.nvidia.com"}: 60}, paid.meter.Set(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheMetricsShowAFault(t *testing.T) {
	t.Parallel()
	c := claimFor("one", "gpu-43-00")
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	a.device(t, "gpu-43-00", func(d state.DeviceHealth) bool { return d.Reason == "xid-119" }, func() error { return sim.ReportXID(1, 119) })
	_, text := get(t, a.agent, "/metrics")
	text = uuidLabel.ReplaceAllString(text, `uuid="$1"`)
	for _, want := range []string{
		`gpu_dra_device_healthy{cause="",device="gpu-1b-00",uuid="GPU"} 1`,
		`gpu_dra_device_healthy{cause="xid-119",device="gpu-43-00",uuid="GPU"} 0`,
		"gpu_dra_claim_" + sample("healthy", "one", "gpu-43-00", "GPU", "hardware", "", "", 0),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Two pods of a PodGroup have one claim, which is reserved for the group alone.
func TestTheMetricsHaveThePodsOfAPodGroup(t *testing.T) {
	n := newUsageNode(t, "dgx-h100")
	n.hold("gang", firstGPU)
	n.hold("other", firstGPU, podUID(9))
	n.claims.limited = nil
	group := claimFor("gang", "gpu-1b-00")
	group.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "uid-of-group"}}
	n.pods.observe(group)
	for i := range 2 {
		pid := 1000000 + i
		n.tasks.add(pid, podUID(1+i), fmt.Sprintf("id-%d", i), "worker")
		n.tasks.mounts(pid, "gang")
		if err := n.sim.AddProcess(0, nvmlsim.Process{PID: pid, MemoryBytes: uint64(4+2*i) * gibi}); err != nil {
			t.Fatal(err)
		}
	}
	n.want(nil, "gang "+string(podUID(1))+"/worker used 4", "gang "+string(podUID(2))+"/worker used 6")
}

// The scheduler allocates shares of one GPU to both claims of a pod.
func TestTheKubeletSaysWhichContainerUsesWhichClaim(t *testing.T) {
	n := newUsageNode(t, "dgx-h100")
	n.hold("one", firstGPU, podUID(1))
	n.hold("two", firstGPU, podUID(1))
	n.claims.limited = nil
	for i, container := range []string{"a", "b"} {
		pid := 1000000 + i
		n.tasks.add(pid, podUID(1), "id-of-"+container, container)
		if err := n.sim.AddProcess(0, nvmlsim.Process{PID: pid, MemoryBytes: uint64(4+2*i) * gibi}); err != nil {
			t.Fatal(err)
		}
	}
	n.pods.observe(ofClass("", claimFor("one", "gpu-1b-00"), 1))
	queries := 0
	n.containerClaims = func(context.Context) ([]podresources.ContainerClaim, error) {
		queries++
		return []podresources.ContainerClaim{
			{Namespace: "team", Pod: "pod-1", Container: "a", Claim: "two"}, {Namespace: "team", Pod: "pod-1", Container: "b", Claim: "one"},
		}, nil
	}
	n.want(nil, "one pod-1/b used 6", "two pod-1/a used 4")
	if queries != 1 {
		t.Errorf("the kubelet was queried %d times, want once for all containers", queries)
	}
	n.containerClaims = func(context.Context) ([]podresources.ContainerClaim, error) { return nil, gpu.ErrNotReady }
	n.want(nil, "one pod-1/a used 2", "one pod-1/b used 3", "two pod-1/a used 2", "two pod-1/b used 3")
}
