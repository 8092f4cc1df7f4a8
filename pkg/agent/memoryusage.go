// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

// usagePatience is the timeout of reading the memory of all containers. It is longer than
// that of one reading, and shorter than that of a scrape.
const usagePatience = 5 * time.Second

// memoryUsage reads the GPU memory of the containers that have a limit.
type memoryUsage struct {
	limited func(context.Context) ([]claim.Limited, error)
	folder  limits.Folder
	gpus    interface {
		MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error)
	}
}

// limitedContainer is a container with a limit on one GPU, and the devices by which it
// uses that GPU.
type limitedContainer struct {
	limits.Limit
	devices []plugin.ContainerMemory
}

// read returns the memory of each container by each device of a claim, ordered by the
// claim, the device, the pod and the container. It calls the driver once for each container
// and GPU. It leaves out containers that have ended. If some containers cannot be read, it
// returns the others and the joined errors. A GPU that does not answer delays only its own
// containers, for as long as ctx and the limit of a reading allow.
//
// The driver does not count the allocations that it refuses.
func (u memoryUsage) read(ctx context.Context) ([]plugin.ContainerMemory, error) {
	byGPU, err := u.containers(ctx)
	errs := []error{err}
	var all []plugin.ContainerMemory
	var mu sync.Mutex
	var reads sync.WaitGroup
	for address, containers := range byGPU {
		reads.Go(func() {
			for _, c := range containers {
				devices, err := u.readContainer(ctx, address, c)
				mu.Lock()
				all, errs = append(all, devices...), append(errs, err)
				mu.Unlock()
			}
		})
	}
	reads.Wait()
	slices.SortFunc(all, compareContainers)
	// A container runtime that runs in a container may name two cgroups alike.
	all = slices.CompactFunc(all, func(a, b plugin.ContainerMemory) bool { return compareContainers(a, b) == 0 })
	return all, errors.Join(errs...)
}

func compareContainers(a, b plugin.ContainerMemory) int {
	return cmp.Or(
		cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerID, b.ContainerID),
	)
}

// readContainer returns the memory of a container by each of its devices on the GPU; none
// if the container has ended.
func (u memoryUsage) readContainer(ctx context.Context, address gpu.PCIAddress, c *limitedContainer) ([]plugin.ContainerMemory, error) {
	found, err := u.gpus.MemoryLimit(ctx, address, c.Cgroup)
	// The path may be of another cgroup by now.
	if !c.IsUsed() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range c.devices {
		c.devices[i].LimitBytes, c.devices[i].UsedBytes = found.Bytes, found.UsedBytes
	}
	return c.devices, nil
}

// containers returns the containers with a limit on each GPU.
func (u memoryUsage) containers(ctx context.Context) (map[gpu.PCIAddress][]*limitedContainer, error) {
	devices, err := u.limited(ctx)
	errs := []error{err}
	byGPU := map[gpu.PCIAddress][]*limitedContainer{}
	for _, d := range devices {
		found, err := u.folder.Containers(d.ID)
		if errors.Is(err, gpu.ErrNotFound) {
			continue // unprepared meanwhile
		}
		errs = append(errs, err)
		for _, l := range found {
			address := d.Device.Address
			at := slices.IndexFunc(byGPU[address], func(c *limitedContainer) bool { return c.ID == l.ID })
			if at < 0 {
				at = len(byGPU[address])
				byGPU[address] = append(byGPU[address], &limitedContainer{Limit: l})
			}
			byGPU[address][at].add(d, l.Bytes)
		}
	}
	return byGPU, errors.Join(errs...)
}

// add adds a device by which the container has so much memory. A claim may have several
// shares of a device.
func (c *limitedContainer) add(d claim.Limited, bytes uint64) {
	name := d.Device.String()
	for i := range c.devices {
		if c.devices[i].Claim == d.Claim && c.devices[i].Device == name {
			c.devices[i].ShareBytes += bytes
			return
		}
	}
	pod, container := procfs.ContainerOf(c.Cgroup)
	if pod == "" {
		container = filepath.Base(c.Cgroup)
	}
	c.devices = append(c.devices, plugin.ContainerMemory{Claim: d.Claim, Device: name, PodUID: pod, ContainerID: container, ShareBytes: bytes})
}

// memoryUsage returns the reader of the memory of containers. It logs if the agent cannot
// see their cgroups: it finds no containers then.
func (a *agent) memoryUsage(ctx context.Context, hw *hardware) memoryUsage {
	if err := cgroup.CheckComplete(); err != nil && a.checkMemoryLimits() == nil {
		klog.FromContext(ctx).Info("Cannot read the GPU memory of containers", "err", err)
	}
	return memoryUsage{limited: a.claims.Limited, folder: limits.Folder(a.home.Limits()), gpus: hw}
}

// containerMemory reads the memory of containers for the metrics.
func (a *agent) containerMemory() []plugin.ContainerMemory {
	ctx, cancel := context.WithTimeout(context.Background(), usagePatience)
	defer cancel()
	all, err := a.usage.read(ctx)
	if err != nil {
		klog.Background().V(2).Info("Cannot read the GPU memory of some containers", "err", err)
	}
	return all
}
