// SPDX-License-Identifier: Apache-2.0

package agent

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
	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
	"github.com/gpu-dra/gpu-dra-driver/pkg/usage"
)

const (
	// usagePatience is the timeout of reading the use of claims. It is longer than that of
	// one reading, and shorter than that of a scrape.
	usagePatience = 5 * time.Second
	// sampleAge is the age from which a sample of the multiprocessors is too old. The
	// driver samples several times in that time.
	sampleAge = 5 * time.Second
)

// usageReader reads the use of the node's GPUs by claims.
type usageReader struct {
	claims interface {
		Held(ctx context.Context) ([]claim.Held, error)
		Limited(ctx context.Context) ([]claim.Limited, error)
	}
	folder limits.Folder
	gpus   interface {
		MIG(ctx context.Context, address gpu.PCIAddress) (gpu.MIG, error)
		Processes(ctx context.Context, address gpu.PCIAddress) ([]gpu.Process, error)
		SMUse(ctx context.Context, address gpu.PCIAddress, since time.Time) (map[int]float64, error)
		MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error)
	}
	proc       procfs.Root
	pods       *podNames
	containers *containerNames
	// containerClaims reads from the kubelet which claims containers use; nil without its
	// socket.
	containerClaims func(ctx context.Context) ([]podresources.ContainerClaim, error)
	// node returns the capacities that claims can hold.
	node  func() usage.Node
	clock clock.PassiveClock
}

// read returns the use of each claim. If something cannot be read, it returns the rest and
// the joined errors. A GPU that does not answer delays only its own readings, for as long as
// ctx and the limit of a reading allow.
func (u *usageReader) read(ctx context.Context) (agentv1.Report, error) {
	held, err := u.claims.Held(ctx)
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
	return usage.New(held, u.node(), readings), errors.Join(errs...)
}

// gpusOf returns the GPUs of the claims, and whether a claim has a MIG device of each.
func gpusOf(held []claim.Held) map[gpu.PCIAddress]bool {
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
func (u *usageReader) readGPU(ctx context.Context, address gpu.PCIAddress, mig bool, shown *shownNames) (r usage.Reading, ok bool, err error) {
	processes, err := u.gpus.Processes(ctx, address)
	if err != nil {
		return r, false, err
	}
	var errs []error
	if mig {
		found, err := u.gpus.MIG(ctx, address)
		r.Partitions, errs = found.Partitions, append(errs, err)
	}
	use, err := u.gpus.SMUse(ctx, address, u.clock.Now().Add(-sampleAge))
	if r.HasSM = err == nil; !errors.Is(err, gpu.ErrNotSupported) {
		errs = append(errs, err)
	}
	for _, p := range processes {
		task, err := u.proc.Task(p.PID)
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
	limits.Limit
	usage usage.Limited
}

// limitedContainers returns the containers with a limit on each GPU.
func (u *usageReader) limitedContainers(ctx context.Context, shown *shownNames) (map[gpu.PCIAddress][]*limitedContainer, error) {
	devices, err := u.claims.Limited(ctx)
	errs := []error{err}
	byGPU := map[gpu.PCIAddress][]*limitedContainer{}
	for _, d := range devices {
		found, err := u.folder.Containers(d.ID)
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
			of := &byGPU[address][at].usage
			of.Devices = append(of.Devices, usage.LimitedDevice{Claim: d.Claim.UID, Device: d.Device.String(), Bytes: l.Bytes})
		}
	}
	return byGPU, errors.Join(errs...)
}

// containerOf returns the container of a limit.
func containerOf(l limits.Limit, shown *shownNames) usage.Container {
	pod, id := procfs.ContainerOf(l.Cgroup)
	if pod == "" {
		return usage.Container{ID: filepath.Base(l.Cgroup)}
	}
	c := usage.Container{PodUID: pod, ID: id}
	if pid, err := cgroup.Process(l.Cgroup); err == nil {
		_ = shown.read(pid, c) // it may have ended
	}
	return c
}

// readContainers returns the memory of containers on a GPU, as the driver counts it, which
// does not include the allocations that it refuses. It leaves out containers that have
// ended. It calls the driver once for each container.
func (u *usageReader) readContainers(ctx context.Context, containers []*limitedContainer) ([]usage.Limited, error) {
	var all []usage.Limited
	var errs []error
	for _, c := range containers {
		found, err := u.gpus.MemoryLimit(ctx, c.usage.Address, c.Cgroup)
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

// name names the pods and the containers, and adds to the claims the pods that use them by
// now.
func (u *usageReader) name(ctx context.Context, held []claim.Held, readings *usage.Readings, shown *shownNames) error {
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
	names, err := u.pods.of(ctx, held, seen)
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
func (u *usageReader) uses(ctx context.Context) func(usage.Container, claim.Ref) bool {
	if u.containerClaims == nil {
		return nil
	}
	known := sync.OnceValue(func() []podresources.ContainerClaim {
		all, err := u.containerClaims(ctx)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot list the claims of containers", "err", err)
		}
		return all
	})
	return func(c usage.Container, ref claim.Ref) bool {
		return slices.Contains(known(), podresources.ContainerClaim{Namespace: ref.Namespace, Pod: c.Pod, Container: c.Name, Claim: ref.Name})
	}
}

// newUsageReader returns the reader of the use of claims. It logs if the agent cannot see the
// cgroups of containers: it finds no limited containers then.
func (a *agent) newUsageReader(ctx context.Context, hw *hardware) *usageReader {
	if err := cgroup.CheckComplete(); err != nil && a.checkMemoryLimits() == nil {
		klog.FromContext(ctx).Info("Cannot read the GPU memory of limited containers", "err", err)
	}
	u := &usageReader{
		claims: a.claims, folder: limits.Folder(a.home.Limits()), gpus: hw, proc: "/", pods: a.pods,
		containers: &containerNames{proc: "/"}, node: a.chargedNode, clock: clock.RealClock{},
	}
	if a.podResources != nil {
		u.containerClaims, u.containers.list = a.podResources.Claims, a.podResources.Containers
	}
	return u
}

// chargedNode returns the capacities of the node that claims can hold.
func (a *agent) chargedNode() usage.Node {
	now := a.state.Snapshot()
	node := usage.Node{Published: a.controller.Capacities(), GPUs: make(map[gpu.PCIAddress]usage.GPU, len(now.Hardware.GPUs))}
	unhealthy := now.Unhealthy()
	for _, g := range now.Node().GPUs {
		_, faulty := unhealthy[g.Address]
		node.GPUs[g.Address] = usage.NewGPU(g, !faulty)
	}
	return node
}

// claimUsage returns the use of the node's claims for the metrics.
func (a *agent) claimUsage() agentv1.Report { return a.readUsage(context.Background()) }

// readUsage returns the use of the node's claims now.
func (a *agent) readUsage(ctx context.Context) agentv1.Report {
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	report, err := a.usage.read(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read what some claims use", "err", err)
	}
	return report
}

// accrue charges the claims up to now, and returns which part of a GPU accounts have held for
// how long.
func (a *agent) accrue() map[usage.Account]float64 {
	held, err := a.claims.Held(context.Background())
	if err != nil {
		return nil
	}
	node, charges := a.chargedNode(), map[types.UID][]usage.Charge{}
	for _, c := range held {
		charges[c.UID] = node.Charges(c.Namespace, c.Devices)
	}
	return a.meter.Set(charges)
}
