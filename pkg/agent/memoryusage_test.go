// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup/cgrouptest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
)

const gibi = 1 << 30

// The first two GPUs of the model dgx-h100-r615.
var firstGPU, secondGPU = gpu.PCIAddress{Bus: 0x1b}, gpu.PCIAddress{Bus: 0x43}

// usageNode is a simulated node with limited containers.
type usageNode struct {
	testing.TB
	memoryUsage
	sim     *nvmlsim.Sim
	library *nvml.Library
	devices []claim.Limited
	driver  *observedDriver
}

func newUsageNode(t *testing.T) *usageNode {
	t.Helper()
	m, err := nvmlsim.LoadModel("dgx-h100-r615")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), m)
	if err != nil {
		t.Fatal(err)
	}
	n := &usageNode{TB: t, sim: sim, library: nvml.New(sim.NVML())}
	n.driver = &observedDriver{Library: n.library}
	n.memoryUsage = memoryUsage{
		limited: func(context.Context) ([]claim.Limited, error) { return n.devices, nil },
		folder:  limits.Folder(t.TempDir()),
		gpus:    n.driver,
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

// device adds a device of a claim. id names its folder.
func (n *usageNode) device(id, name string, address gpu.PCIAddress) claim.Limited {
	n.Helper()
	d := claim.Limited{
		Claim:  claim.Ref{Namespace: "team-a", Name: name},
		Device: kind.Whole(address), ID: id,
	}
	n.devices = append(n.devices, d)
	if err := n.folder.Open(id); err != nil {
		n.Fatal(err)
	}
	return d
}

// admit limits a container as the hook does, and returns what the container has by the
// device.
func (n *usageNode) admit(d claim.Limited, folder string, bytes uint64) plugin.ContainerMemory {
	n.Helper()
	id, err := cgroup.Lookup(folder)
	if err != nil {
		n.Fatal(err)
	}
	l := limits.Limit{Cgroup: folder, ID: id, GPU: d.Device.Address.String(), Bytes: bytes}
	sum, err := n.folder.Admit(d.ID, l, 8)
	if err == nil {
		err = n.library.SetMemoryLimit(n.Context(), d.Device.Address, folder, sum)
	}
	if err != nil {
		n.Fatal(err)
	}
	return plugin.ContainerMemory{
		Claim: d.Claim, Device: d.Device.String(), ContainerID: filepath.Base(folder), ShareBytes: bytes, LimitBytes: sum,
	}
}

// compute starts a process of the container that uses memory of a GPU.
func (n *usageNode) compute(index int, folder string, bytes uint64) (pid int) {
	n.Helper()
	pid = cgrouptest.Process(n, folder)
	ids, err := cgroup.Ancestry(pid)
	if err == nil {
		err = n.sim.AddProcess(index, nvmlsim.Process{PID: pid, MemoryBytes: bytes, Cgroups: ids})
	}
	if err != nil {
		n.Fatal(err)
	}
	return pid
}

func (n *usageNode) want(want ...plugin.ContainerMemory) {
	n.Helper()
	got, err := n.read(n.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		n.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTheMemoryOfEachContainerOfAClaim(t *testing.T) {
	n := newUsageNode(t)
	d := n.device("share", "share", firstGPU)
	first := cgrouptest.New(t)
	// As the kubelet and the container runtime name it.
	const pod = "0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11"
	second := cgrouptest.Child(t, cgrouptest.Child(t, cgrouptest.New(t), "pod"+pod), "abc")
	ended := cgrouptest.New(t)
	n.compute(0, first, 3*gibi)
	n.compute(0, first, 4*gibi)
	n.compute(0, second, gibi)
	ends := n.compute(0, ended, gibi)
	a, b, c := n.admit(d, first, 10*gibi), n.admit(d, second, 20*gibi), n.admit(d, ended, 2*gibi)
	b.PodUID, b.ContainerID = pod, "abc"
	a.UsedBytes, b.UsedBytes, c.UsedBytes = 7*gibi, gibi, gibi
	want := []plugin.ContainerMemory{a, c, b}
	if a.ContainerID > c.ContainerID {
		want[0], want[1] = c, a
	}
	n.want(want...)

	n.driver.during = sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(filepath.Dir(ended), "cgroup.procs"), fmt.Append(nil, ends), 0o600); err != nil {
			t.Error(err)
		}
	})
	n.want(a, b)
	if err := os.Remove(ended); err != nil {
		t.Fatal(err)
	}
	n.want(a, b)
	if err := n.folder.Close(d.ID); err != nil {
		t.Fatal(err)
	}
	n.want()
}

func TestAContainerWithSeveralDevicesOnAGPU(t *testing.T) {
	n := newUsageNode(t)
	folder := cgrouptest.New(t)
	n.compute(0, folder, gibi)
	// Two shares of a device in one claim, and a share in another claim.
	n.admit(n.device("one-1", "one", firstGPU), folder, 2*gibi)
	n.admit(n.device("one-2", "one", firstGPU), folder, 3*gibi)
	two := n.admit(n.device("two", "two", firstGPU), folder, 4*gibi)
	two.UsedBytes = gibi
	one := two
	one.Claim.Name, one.ShareBytes = "one", 5*gibi
	n.want(one, two)
	if n.driver.calls != 1 {
		t.Errorf("%d calls into the driver, want 1", n.driver.calls)
	}
}

func TestAGPUThatHangsHidesNoContainerOfAnother(t *testing.T) {
	n := newUsageNode(t)
	folder := cgrouptest.New(t)
	n.compute(0, folder, gibi)
	c := n.admit(n.device("good", "good", firstGPU), folder, 2*gibi)
	c.UsedBytes = gibi
	bad := n.device("bad", "bad", secondGPU)
	for range 3 {
		folder := cgrouptest.New(t)
		n.compute(1, folder, gibi)
		n.admit(bad, folder, 2*gibi)
	}
	if err := n.sim.HangGPU(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.sim.ClearFaults() })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	got, err := n.read(ctx)
	if diff := cmp.Diff([]plugin.ContainerMemory{c}, got); diff != "" || !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("%v, want %v (-want +got):\n%s", err, gpu.ErrTimeout, diff)
	}
}

func TestContainersWhoseMemoryCannotBeRead(t *testing.T) {
	n := newUsageNode(t)
	folder, unlimited := cgrouptest.New(t), cgrouptest.New(t)
	n.compute(0, folder, gibi)
	n.compute(0, unlimited, gibi)
	d := n.device("share", "share", firstGPU)
	c, without := n.admit(d, folder, 2*gibi), n.admit(d, unlimited, 2*gibi)
	c.UsedBytes = gibi
	if err := n.library.SetMemoryLimit(t.Context(), firstGPU, unlimited, gpu.NoMemoryLimit); err != nil {
		t.Fatal(err)
	}
	without.LimitBytes = gpu.NoMemoryLimit
	if err := os.WriteFile(filepath.Join(string(n.folder), d.ID, "0"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []plugin.ContainerMemory{c, without}
	if c.ContainerID > without.ContainerID {
		want[0], want[1] = without, c
	}
	got, err := n.read(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, gpu.ErrCorrupt) {
		t.Errorf("%v, want %v (-want +got):\n%s", err, gpu.ErrCorrupt, diff)
	}
}

func TestTheMetricsHaveTheMemoryOfContainers(t *testing.T) {
	t.Parallel()
	folder := cgrouptest.New(t)
	cgrouptest.Process(t, folder)
	c := claimFor("one", "gpu-1b-00")
	n := newNode(t, c)
	n.Hardware = "sim:dgx-h100-r615"
	a := n.start(t)
	n.published(t)
	// A whole GPU has no limit, so this is as if the claim had one.
	a.usage.limited = func(context.Context) ([]claim.Limited, error) {
		return []claim.Limited{{Claim: claim.Ref{Namespace: "team-a", Name: "one"}, Device: kind.Whole(firstGPU), ID: "one"}}, nil
	}
	id, err := cgroup.Lookup(folder)
	if err == nil {
		err = a.usage.folder.Open("one")
	}
	if err == nil {
		_, err = a.usage.folder.Admit("one", limits.Limit{Cgroup: folder, ID: id, GPU: firstGPU.String(), Bytes: gibi}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Open(n.SimState)
	if err == nil {
		err = nvml.New(sim.NVML()).SetMemoryLimit(t.Context(), firstGPU, folder, gibi)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`gpu_dra_container_memory_limit_bytes{claim="one",container_id=%q,device="gpu-1b-00",namespace="team-a",pod_uid=""} %g`, filepath.Base(folder), float64(gibi))
	if code, body := get(t, a.agent, "/metrics"); code != http.StatusOK || !strings.Contains(body, want) {
		t.Errorf("/metrics = %d without %s in\n%s", code, want, body)
	}
}
