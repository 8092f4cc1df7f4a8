// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

// sampleAge is the age from which a sample of the multiprocessors is too old. The driver
// samples several times in that time.
const sampleAge = 5 * time.Second

// Options of a [Reader].
type Options struct {
	Claims interface {
		Held(ctx context.Context) ([]claim.Claim, error)
		LimitedDevices(ctx context.Context) ([]claim.LimitedDevice, error)
	}
	// Limits has the limits of containers.
	Limits containerlimits.Folder
	GPUs   interface {
		MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error)
		Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error)
		SMUse(ctx context.Context, address gpu.PCIAddress, since time.Time) (map[int]float64, error)
		MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error)
	}
	Proc procfs.Root
	Pods *Pods
	// Containers reads the containers of all pods from the kubelet, and ContainerClaims which
	// claims they use. Both are nil without its socket.
	Containers      func(ctx context.Context) ([]podresources.Container, error)
	ContainerClaims func(ctx context.Context) ([]podresources.ContainerClaim, error)
	// Node returns the capacities that claims can hold.
	Node  func() usage.Node
	Clock clock.PassiveClock
}

// Reader reads the use of the node's GPUs by claims.
type Reader struct {
	o          Options
	containers *containerNames
}

// New returns a reader.
func New(o Options) *Reader {
	return &Reader{o: o, containers: &containerNames{proc: o.Proc, list: o.Containers}}
}

// Read returns the use of each claim. If something cannot be read, it returns the rest and
// the joined errors. A GPU that does not answer delays only its own readings, for as long as
// ctx and the limit of a reading allow.
func (u *Reader) Read(ctx context.Context) (agentv1.Report, error) {
	held, err := u.o.Claims.Held(ctx)
	errs := []error{err}
	shown := u.containers.shown()
	containers, err := u.limitedContainers(ctx, shown)
	errs = append(errs, err)

	readings := usage.Readings{GPUs: map[gpu.PCIAddress]usage.Reading{}, Uses: u.uses(ctx)}
	var mu sync.Mutex
	var reads sync.WaitGroup
	for address, mig := range gpusOf(held) {
		reads.Go(func() {
			reading, ok, err := u.readGPU(ctx, address, mig, shown)
			limited, limitedErr := u.readContainers(ctx, containers[address])
			mu.Lock()
			defer mu.Unlock()
			if ok {
				readings.GPUs[address] = reading
			}
			readings.Limited = append(readings.Limited, limited...)
			errs = append(errs, err, limitedErr)
		})
	}
	reads.Wait()
	errs = append(errs, u.name(ctx, held, &readings, shown))
	return usage.ReportOf(held, u.o.Node(), readings), errors.Join(errs...)
}

// gpusOf returns the GPUs of the claims, and whether a claim has a MIG device of each.
func gpusOf(held []claim.Claim) map[gpu.PCIAddress]bool {
	gpus := map[gpu.PCIAddress]bool{}
	for _, c := range held {
		for _, d := range c.Devices {
			if d.Name.OnGPU() {
				gpus[d.Name.Address] = gpus[d.Name.Address] || d.Name.IsPartition()
			}
		}
	}
	return gpus
}

// readGPU reads the processes of pods on a GPU; ok is false if they cannot be listed.
func (u *Reader) readGPU(ctx context.Context, address gpu.PCIAddress, mig bool, shown *shownNames) (r usage.Reading, ok bool, err error) {
	processes, err := u.o.GPUs.Processes(ctx, address)
	if err != nil {
		return r, false, err
	}
	var errs []error
	if mig {
		found, err := u.o.GPUs.MIG(ctx, address)
		r.Partitions, errs = found.Partitions, append(errs, err)
	}
	use, err := u.o.GPUs.SMUse(ctx, address, u.o.Clock.Now().Add(-sampleAge))
	if r.HasSM = err == nil; !errors.Is(err, gpu.ErrNotSupported) {
		errs = append(errs, err)
	}
	for _, p := range processes {
		task, err := u.o.Proc.Task(p.PID)
		if errors.Is(err, gpu.ErrNotFound) || task.IsMPS() || err == nil && task.PodUID == "" {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		process := usage.Process{
			Container:   usage.Container{PodUID: task.PodUID, ID: task.ContainerID},
			MemoryBytes: p.MemoryBytes, GPUInstance: p.GPUInstance,
		}
		errs = append(errs, shown.read(p.PID, process.Container))
		if sm, sampled := use[p.PID]; sampled {
			process.SM = &sm
		}
		r.Processes = append(r.Processes, process)
	}
	return r, true, errors.Join(errs...)
}

// limitedContainer is a container with a limit on a GPU.
type limitedContainer struct {
	containerlimits.Limit
	usage usage.Limited
}

// limitedContainers returns the containers with a limit on each GPU.
func (u *Reader) limitedContainers(ctx context.Context, shown *shownNames) (map[gpu.PCIAddress][]*limitedContainer, error) {
	devices, err := u.o.Claims.LimitedDevices(ctx)
	errs := []error{err}
	byGPU := map[gpu.PCIAddress][]*limitedContainer{}
	for _, d := range devices {
		found, err := u.o.Limits.Containers(d.ID)
		if errors.Is(err, gpu.ErrNotFound) {
			continue // unprepared meanwhile
		}
		errs = append(errs, err)
		address := d.Device.Address
		for _, l := range found {
			at := slices.IndexFunc(byGPU[address], func(c *limitedContainer) bool { return c.ID == l.ID })
			if at < 0 {
				at = len(byGPU[address])
				byGPU[address] = append(byGPU[address], &limitedContainer{Limit: l, usage: usage.Limited{Address: address, Container: containerOf(l, shown)}})
			}
			limited := &byGPU[address][at].usage
			limited.Devices = append(limited.Devices, usage.LimitedDevice{Claim: d.Claim.UID, Device: d.Device.String(), Bytes: l.Bytes})
		}
	}
	return byGPU, errors.Join(errs...)
}

// containerOf returns the container of a limit.
func containerOf(l containerlimits.Limit, shown *shownNames) usage.Container {
	pod, id := cgroup.ContainerOf(l.Cgroup)
	if pod == "" {
		return usage.Container{ID: filepath.Base(l.Cgroup)}
	}
	c := usage.Container{PodUID: pod, ID: id}
	if pid, err := cgroup.Process(l.Cgroup); err == nil {
		_ = shown.read(pid, c) // it may have ended
	}
	return c
}

// readContainers returns the memory of containers on a GPU, as the driver counts it. The
// driver does not count allocations that it refuses. It leaves out containers that have
// ended. It calls the driver once for each container.
func (u *Reader) readContainers(ctx context.Context, containers []*limitedContainer) ([]usage.Limited, error) {
	var all []usage.Limited
	var errs []error
	for _, c := range containers {
		found, err := u.o.GPUs.MemoryLimit(ctx, c.usage.Address, c.Cgroup)
		// The path may be of another cgroup by now.
		if !c.IsUsed() {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.usage.MemoryLimit = found
		all = append(all, c.usage)
	}
	return all, errors.Join(errs...)
}

// name names the pods and the containers, and adds to the claims the pods that now use
// them.
func (u *Reader) name(ctx context.Context, held []claim.Claim, readings *usage.Readings, shown *shownNames) error {
	var containers []*usage.Container
	seen := map[gpu.PCIAddress][]types.UID{}
	for address, reading := range readings.GPUs {
		for i := range reading.Processes {
			c := &reading.Processes[i].Container
			containers, seen[address] = append(containers, c), append(seen[address], types.UID(c.PodUID))
		}
	}
	for i := range readings.Limited {
		l := &readings.Limited[i]
		containers, seen[l.Address] = append(containers, &l.Container), append(seen[l.Address], types.UID(l.PodUID))
	}
	names, err := u.o.Pods.namesByClaim(ctx, held, seen)
	namespaces := map[string]string{}
	for i := range held {
		held[i].Pods = slices.AppendSeq(slices.Clone(held[i].Pods), maps.Keys(names[held[i].UID]))
		for _, c := range containers {
			if name := names[held[i].UID][types.UID(c.PodUID)]; name != "" {
				c.Pod, namespaces[c.PodUID] = name, held[i].Namespace
			}
		}
	}
	return errors.Join(err, u.containers.set(ctx, containers, namespaces, shown))
}

// uses returns a function that reports whether a container uses a claim. Its first call
// reads the claims of all containers from the kubelet.
func (u *Reader) uses(ctx context.Context) func(usage.Container, claim.Ref) bool {
	if u.o.ContainerClaims == nil {
		return nil
	}
	known := sync.OnceValue(func() []podresources.ContainerClaim {
		all, err := u.o.ContainerClaims(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot list the claims of containers", "err", err)
		}
		return all
	})
	return func(c usage.Container, ref claim.Ref) bool {
		return slices.Contains(known(), podresources.ContainerClaim{Namespace: ref.Namespace, Pod: c.Pod, Container: c.Name, Claim: ref.Name})
	}
}
