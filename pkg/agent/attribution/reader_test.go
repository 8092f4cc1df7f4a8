// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	simcgroup "github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
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
	must(p, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "mountinfo"), []byte("1 0 254:1 / / rw - ext4 /dev/vda1 rw\n"), 0o600),
		os.MkdirAll(p.groups(), 0o755), os.WriteFile(filepath.Join(p.groups(), "cgroup.procs"), nil, 0o600)))
}

// groups is the root of the cgroups.
func (p tasks) groups() string { return filepath.Join(string(p.Root), "cgroups") }

// consumers reads the processes.
func (p tasks) consumers() Consumers {
	return Consumers{Proc: p.Root, Tasks: &procfs.Seen{Root: p.Root}, DriverDir: driverFolder, Metadata: place.MetadataFolder, Groups: cgroup.PodsIn(p.groups())}
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
	must(p, err)
}

// add adds a process of a container, as the kernel shows it.
func (p tasks) add(pid int, pod types.UID, id, container string) {
	p.Helper()
	dir := filepath.Join(string(p.Root), "proc", strconv.Itoa(pid))
	group := ":/kubepods/pod" + string(pod) + "/" + id
	folder := filepath.Join(p.groups(), group[1:])
	must(p, errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(folder, 0o755)))
	processes, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Fatal(err)
	}
	must(p, os.WriteFile(filepath.Join(folder, "cgroup.procs"), fmt.Appendf(processes, "%d\n", pid), 0o600))
	for name, content := range map[string]string{
		"stat":      fmt.Sprintf("%d (python) S 1%s 7\n", pid, strings.Repeat(" 0", 17)),
		"status":    "Name:\tpython\nNSpid:\t" + strconv.Itoa(pid) + "\t1\n",
		"cgroup":    "0:" + group + "\n",
		"mountinfo": "800 799 0:50 / / rw - overlay overlay rw\n801 800 254:1 /var/lib/kubelet/pods/" + string(pod) + "/containers/" + container + "/1f2e3d4c /dev/termination-log rw - ext4 /dev/vda1 rw\n",
	} {
		must(p, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// usageNode is a simulated node with limited containers.
type usageNode struct {
	testing.TB
	*Reader
	tasks  tasks
	sim    *nvmlsim.Sim
	driver *observedDriver
	claims *heldClaims
	// made is the number of containers, each of a pod.
	made int
}

// heldClaims are the claims of a test.
type heldClaims struct {
	held    []claim.Claim
	limited []claim.LimitedDevice
}

func (c *heldClaims) Held(context.Context) ([]claim.Claim, error) { return slices.Clone(c.held), nil }

func (c *heldClaims) LimitedDevices(context.Context) ([]claim.LimitedDevice, error) {
	return c.limited, nil
}

func newUsageNode(t testing.TB, model string) *usageNode {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), m)
	must(t, err)
	n := &usageNode{TB: t, sim: sim, tasks: newTasks(t), claims: &heldClaims{}, driver: &observedDriver{Library: nvml.New(sim.NVML())}}
	n.Reader = New(Options{
		Claims: n.claims, Limits: containerlimits.Folder(t.TempDir()), GPUs: n.driver, Proc: n.tasks.Root,
		Pods: NewPods(clock.RealClock{}, func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) { return nil, nil }, n.tasks.consumers().Of),
		Node: func() usage.Node { return usage.Node{} }, Clock: clock.RealClock{},
	})
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
func (n *usageNode) hold(name string, address gpu.PCIAddress, pods ...types.UID) claim.LimitedDevice {
	n.Helper()
	device := claim.Device{
		Name: kind.Whole(address), UUID: "GPU",
		Terms: share.Terms{Share: &share.Amount{Memory: 40 * gibi}, Limit: &share.Limit{Memory: 40 * gibi, Containers: 1}},
	}
	ref := claim.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}
	n.claims.held = append(n.claims.held, claim.Claim{Ref: ref, Phase: claim.Prepared, Pods: pods, Devices: []claim.Device{device}})
	l := claim.LimitedDevice{Claim: ref, Device: kind.Whole(address), ID: name}
	n.claims.limited = append(n.claims.limited, l)
	must(n, n.o.Limits.Open(l.ID))
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
func (n *usageNode) admit(l claim.LimitedDevice, folder string, bytes uint64) {
	n.Helper()
	id, err := cgroup.Lookup(folder)
	must(n, err)
	sum, err := n.o.Limits.Admit(l.ID, containerlimits.Limit{Cgroup: folder, ID: id, GPU: l.Device.Address.String(), Bytes: bytes}, 8)
	if err == nil {
		err = n.driver.SetMemoryLimit(n.Context(), l.Device.Address, folder, sum)
	}
	must(n, err)
}

// compute starts a process of the container that uses memory of a GPU.
func (n *usageNode) compute(index int, folder string, bytes uint64) (pid int) {
	n.Helper()
	pid = cgrouptest.Process(n, folder)
	pod, id := cgroup.ContainerOf(folder)
	n.tasks.add(pid, types.UID(pod), id, "name-of-"+id)
	ids, err := simcgroup.Ancestry(pid)
	if err == nil {
		err = n.sim.AddProcess(index, nvmlsim.Process{PID: pid, MemoryBytes: bytes, Cgroups: ids})
	}
	must(n, err)
	return pid
}

func (n *usageNode) want(err error, want ...string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Second)
	defer cancel()
	report, got := n.Read(ctx)
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

	must(t, n.sim.RemoveProcess(ends))
	n.driver.during = sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(filepath.Dir(ended), "cgroup.procs"), fmt.Append(nil, ends), 0o600); err != nil {
			t.Error(err)
		}
	})
	n.want(nil, a, c)
	must(t, n.o.Limits.Close(l.ID))
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
	must(t, n.sim.HangGPU(1))
	t.Cleanup(func() { _ = n.sim.ClearFaults() })
	n.want(gpu.ErrTimeout, fmt.Sprintf("good %s/name-of-good used 1 of 2", goodPod))
}

func TestAContainerWhoseLimitCannotBeRead(t *testing.T) {
	n := newUsageNode(t, "dgx-h100-r615")
	folder, pod := n.container("c")
	l := n.hold("share", firstGPU, pod)
	n.compute(0, folder, gibi)
	n.admit(l, folder, 2*gibi)
	must(t, os.WriteFile(filepath.Join(string(n.o.Limits), l.ID, "0"), []byte("{"), 0o600))
	n.want(gpu.ErrCorrupt, fmt.Sprintf("share %s/name-of-c used 1 of 2", pod))
}

// reservedFor returns the claim "one", which is reserved for pods.
func reservedFor(pods ...int) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", UID: "uid-one"}}
	for _, n := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprintf("pod-%d", n), UID: podUID(n)})
	}
	return c
}

// Two pods of a PodGroup have one claim, which is reserved for the group alone.
func TestTheMetricsHaveThePodsOfAPodGroup(t *testing.T) {
	n := newUsageNode(t, "dgx-h100")
	n.hold("gang", firstGPU)
	n.hold("other", firstGPU, podUID(9))
	n.claims.limited = nil
	group := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gang", UID: "uid-gang"}}
	group.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "gang", UID: "uid-of-group"}}
	n.o.Pods.Observe(group)
	for i := range 2 {
		pid := 1000000 + i
		n.tasks.add(pid, podUID(1+i), fmt.Sprintf("id-%d", i), "worker")
		n.tasks.mounts(pid, "gang")
		must(t, n.sim.AddProcess(0, nvmlsim.Process{PID: pid, MemoryBytes: uint64(4+2*i) * gibi}))
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
		must(t, n.sim.AddProcess(0, nvmlsim.Process{PID: pid, MemoryBytes: uint64(4+2*i) * gibi}))
	}
	n.o.Pods.Observe(reservedFor(1))
	queries := 0
	n.o.ContainerClaims = func(context.Context) ([]podresources.ContainerClaim, error) {
		queries++
		return []podresources.ContainerClaim{
			{Namespace: "team", Pod: "pod-1", Container: "a", Claim: "two"}, {Namespace: "team", Pod: "pod-1", Container: "b", Claim: "one"},
		}, nil
	}
	n.want(nil, "one pod-1/b used 6", "two pod-1/a used 4")
	if queries != 1 {
		t.Errorf("the kubelet was queried %d times, want once for all containers", queries)
	}
	n.o.ContainerClaims = func(context.Context) ([]podresources.ContainerClaim, error) { return nil, gpu.ErrNotReady }
	n.want(nil, "one pod-1/a used 2", "one pod-1/b used 3", "two pod-1/a used 2", "two pod-1/b used 3")
}

var must = require.NoError
