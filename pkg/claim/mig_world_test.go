// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// migWorld is a world with simulated GPUs. Its inventory omits partitions that claims
// create.
type migWorld struct {
	*world
	sim    *nvmlsim.Sim
	lib    *nvml.Library
	static bool
	keep   []string // devices that stay without claims
	// openers are the processes that have device nodes open, by the node.
	openers map[string]map[int]gpu.Task
}

func newMIGWorld(t fataler, dir, model string) *migWorld {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	must(t, err)
	sim, err := nvmlsim.Create(filepath.Join(dir, "sim"), m)
	must(t, err)
	return inMIGWorld(t, filepath.Join(dir, "agent"), sim)
}

func inMIGWorld(t fataler, dir string, sim *nvmlsim.Sim) *migWorld {
	t.Helper()
	w := &migWorld{world: newWorld(t, dir, 0), sim: sim}
	w.open()
	w.partitioning = w.migParts
	return w
}

// withSharing lets claims share the GPUs and MIG devices.
func (w *migWorld) withSharing() *migWorld {
	w.canShare(func() []string {
		v, err := w.sim.View()
		must(w.t, err)
		var uuids []string
		for _, g := range v.GPUs {
			for _, in := range g.Instances {
				uuids = append(uuids, in.UUID)
			}
		}
		return uuids
	})
	w.computeModes = w.lib
	return w
}

// scan updates the inventory from the simulated hardware.
func (w *migWorld) scan() {
	w.t.Helper()
	node, err := w.lib.Snapshot(context.Background())
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range node.GPUs {
		w.gpus[g.Address] = g
	}
}

// migParts returns the partitioning options of a process of the agent.
func (w *migWorld) migParts(disk store.FS) *ports.Partitioning {
	modes, err := store.Open(filepath.Join(w.dir, "modes"), disk)
	must(w.t, err)
	kept, err := store.Open(filepath.Join(w.dir, "kept"), disk)
	must(w.t, err)
	return &ports.Partitioning{
		MIG: faultyMIG{w.lib, w.faults, w.sim.NVML()}, CapabilityNodes: sysfs.Root(w.sim.Root()).CapabilityNodes, Openers: w.openersOf, Modes: modes, Static: w.static,
		Kept: kept, Keep: func(name kind.Name) bool { return slices.Contains(w.keep, name.String()) },
	}
}

func (w *migWorld) openersOf(nodes []string) (map[int]gpu.Task, error) {
	all := map[int]gpu.Task{}
	for _, node := range nodes {
		maps.Copy(all, w.openers[node])
	}
	return all, nil
}

// allowReset permits resets of GPUs.
func (w *migWorld) allowReset() {
	w.open(nvml.AllowReset(func(_ context.Context, a gpu.PCIAddress) error {
		index, err := w.sim.FindGPU(a.String())
		if err != nil {
			return err
		}
		return w.faults.around(once(), "reset", func() error { return w.sim.ResetGPU(index) })
	}))
}

// open opens the library again, as another process of the agent does.
func (w *migWorld) open(options ...nvml.Option) {
	w.lib = nvml.New(w.sim.NVML(), options...)
	w.scan()
}

func (w *migWorld) reboot() {
	w.t.Helper()
	if w.supervisor != nil {
		clear(w.supervisor.daemons)
		clear(w.timeSlices.now)
	}
	must(w.t, w.sim.Reboot())
	w.boot++
}

// cuts renders the GPUs that are in MIG mode, one a line, with their
// partitions.
func (w *migWorld) cuts() string {
	w.t.Helper()
	v, err := w.sim.View()
	must(w.t, err)
	var b strings.Builder
	for _, g := range v.GPUs {
		if g.MIG == "off" || g.MIG == "" {
			continue
		}
		fmt.Fprintf(&b, "%d %s:", g.Index, g.MIG)
		for _, in := range g.Instances {
			fmt.Fprintf(&b, " %s@%d", in.Profile, in.Start)
			if in.UUID == "" {
				b.WriteString("(empty)")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// uuids returns the UUIDs of a GPU's MIG devices.
func (w *migWorld) uuids(index int) []string {
	w.t.Helper()
	v, err := w.sim.View()
	must(w.t, err)
	var uuids []string
	for _, in := range v.GPUs[index].Instances {
		uuids = append(uuids, in.UUID)
	}
	return uuids
}

// administrator creates or destroys a partition as an administrator, with MIG mode on.
func (w *migWorld) administrator(verb string, index int, profile string, start int) {
	w.t.Helper()
	v, err := w.sim.View()
	must(w.t, err)
	address, err := gpu.ParsePCIAddress(v.GPUs[index].Address)
	must(w.t, err)
	p, err := gpu.ParseProfile(profile)
	must(w.t, err)
	ctx := context.Background()
	if err = w.lib.SetMIGMode(ctx, address, true); err == nil {
		if verb == "makes" {
			_, err = w.lib.CreatePartition(ctx, address, p, start)
		} else {
			err = w.lib.DestroyPartition(ctx, address, p, start)
		}
	}
	must(w.t, err)
}

// left renders the remaining state: files, held devices and partitions.
func (w *migWorld) left(m *claim.Manager) string {
	w.t.Helper()
	lines := slices.DeleteFunc(strings.SplitAfter(w.files(), "\n"), func(f string) bool {
		return strings.HasSuffix(f, ".tmp\n") // of a write that died
	})
	left := strings.Join(lines, "") + w.held(m) + w.cuts()
	if w.supervisor != nil {
		left += w.supervisor.String() + w.timeSlices.String() + w.modes()
	}
	return left
}

// spec returns the CDI spec of a claim as text.
func (w *migWorld) spec(c *resourceapi.ResourceClaim) string {
	w.t.Helper()
	data, err := os.ReadFile(w.specPath(c))
	must(w.t, err)
	return string(data)
}

// faultyMIG is the hardware of a process that may die before and after each change.
// It ignores contexts: see once.
type faultyMIG struct {
	*nvml.Library
	*faults
	driver vendor.Interface
}

func (f faultyMIG) MIG(ctx context.Context, a gpu.PCIAddress) (mig gpu.MIG, err error) {
	err = f.call(ctx, "MIG.MIG", func() error { mig, err = f.Library.MIG(context.WithoutCancel(ctx), a); return err })
	return mig, err
}

func (f faultyMIG) MIGMode(ctx context.Context, a gpu.PCIAddress) (on, pending bool, err error) {
	err = f.call(ctx, "MIG.MIGMode", func() error { on, pending, err = f.Library.MIGMode(context.WithoutCancel(ctx), a); return err })
	return on, pending, err
}

func (f faultyMIG) CancelPendingMIGMode(ctx context.Context, a gpu.PCIAddress) error {
	return f.around(ctx, "MIG.CancelPendingMIGMode", func() error { return f.Library.CancelPendingMIGMode(context.WithoutCancel(ctx), a) })
}

func (f faultyMIG) SetMIGMode(ctx context.Context, a gpu.PCIAddress, on bool) error {
	return f.around(ctx, "MIG.SetMIGMode", func() error { return f.Library.SetMIGMode(context.WithoutCancel(ctx), a, on) })
}

func (f faultyMIG) CreatePartition(ctx context.Context, a gpu.PCIAddress, p gpu.Profile, start int) (made gpu.Partition, err error) {
	f.point()
	if f.dieAt > 0 {
		f.createHalf(ctx, a, p, start)
	}
	err = f.around(ctx, "MIG.CreatePartition", func() error {
		made, err = f.Library.CreatePartition(context.WithoutCancel(ctx), a, p, start)
		return err
	})
	return made, err
}

func (f faultyMIG) DestroyPartition(ctx context.Context, a gpu.PCIAddress, p gpu.Profile, start int) error {
	f.point()
	if f.dieAt > 0 {
		f.destroyHalf(ctx, a, p, start)
	}
	return f.around(ctx, "MIG.DestroyPartition", func() error {
		return f.Library.DestroyPartition(context.WithoutCancel(ctx), a, p, start)
	})
}

// minor returns the device minor of a GPU's capability, as the kernel reports it.
func (w *migWorld) minor(index int, path string) int {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.sim.Root(), fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig", index), path))
	must(w.t, err)
	var minor int
	must(w.t, errOf(fmt.Sscanf(string(data), "DeviceFileMinor: %d", &minor)))
	return minor
}

// remake destroys the partition at a placement and creates another one that starts
// there, as an administrator.
func (w *migWorld) remake(profile string, start int) {
	w.t.Helper()
	w.administrator("destroys", 0, "1g.10gb", start)
	w.administrator("makes", 0, profile, start)
}

// halve destroys the compute instances of a GPU, as an administrator.
func (w *migWorld) halve(index int) {
	w.t.Helper()
	v, err := w.sim.View()
	must(w.t, err)
	address, err := gpu.ParsePCIAddress(v.GPUs[index].Address)
	must(w.t, err)
	mig, err := w.lib.MIG(context.Background(), address)
	must(w.t, err)
	for _, p := range mig.Partitions {
		faultyMIG{Library: w.lib, driver: w.sim.NVML()}.destroyHalf(context.Background(), address, p.Profile, p.Placement.Start)
	}
}

// place returns the GPU, and a placement on it in NVML's terms.
func (f faultyMIG) place(ctx context.Context, a gpu.PCIAddress, p gpu.Profile, start int) (device vendor.Device, info vendor.GpuInstanceProfileInfo, at vendor.GpuInstancePlacement) {
	device, _ = f.driver.DeviceGetHandleByPciBusId(a.String())
	mig, _ := f.Library.MIG(context.WithoutCancel(ctx), a)
	told, place, known := mig.Find(p, start)
	if known {
		info, _ = device.GetGpuInstanceProfileInfo(told.ID)
		at = vendor.GpuInstancePlacement{Start: uint32(place.Start), Size: uint32(place.Size)}
	}
	return device, info, at
}

// createHalf creates the GPU instance of a partition without a compute instance. It
// does nothing if the placement is occupied.
func (f faultyMIG) createHalf(ctx context.Context, a gpu.PCIAddress, p gpu.Profile, start int) {
	device, info, at := f.place(ctx, a, p, start)
	_, _ = device.CreateGpuInstanceWithPlacement(&info, &at)
}

// destroyHalf destroys the compute instances of a partition that nothing uses.
func (f faultyMIG) destroyHalf(ctx context.Context, a gpu.PCIAddress, p gpu.Profile, start int) {
	device, info, at := f.place(ctx, a, p, start)
	instances, _ := device.GetGpuInstances(&info)
	for _, instance := range instances {
		if is, _ := instance.GetInfo(); is.Placement != at {
			continue
		}
		for number := range vendor.COMPUTE_INSTANCE_PROFILE_COUNT {
			info, ret := instance.GetComputeInstanceProfileInfo(number, vendor.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
			if ret != vendor.SUCCESS {
				continue
			}
			computes, _ := instance.GetComputeInstances(&info)
			for _, compute := range computes {
				_ = compute.Destroy() // the library says why it did not work
			}
		}
	}
}
