// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// mpsTerms returns the terms of a share whose processes are clients of its device's daemon.
func (in Inputs) mpsTerms(d deviceRequest, all []deviceRequest, config v1alpha1.ShareConfig) (share.Terms, error) {
	if err := in.checkUse(d, use.ByMPS, use.NoMPS); err != nil {
		return share.Terms{}, err
	}
	if n := len(d.companions(all)); n > 1 {
		if units := d.name.Kind.Units().Capacity; d.name.Kind.NeedsMPS() {
			return share.Terms{}, fmt.Errorf("%w: %d %s in one request, and a container can be client of one MPS daemon only; ask for one, or for more of one GPU in a claim with capacity: {requests: {%s: %d}}", gpu.ErrInvalid, n, units, units, n)
		}
		return share.Terms{}, fmt.Errorf("%w: %d MPS shares for one request, and a container can be client of one MPS daemon only; see %s", gpu.ErrInvalid, n, gpu.Page("docs/user/events.md#when-a-share-does-not-start"))
	}
	if err := d.checkProcesses(config.Processes); err != nil {
		return share.Terms{}, err
	}
	client := limitsOf(shareSize{
		memory: d.share.Memory, all: uint64(d.all.Value()), compute: d.share.Compute, burst: config.Compute == v1alpha1.ComputeBurst,
		processes: config.Processes,
	})
	client.Daemon = d.name.MPSDaemon()
	t := share.Terms{Share: d.amount(), MPS: &client, Require: config.Require}
	t.Exclusive = in.ExclusiveCompute && t.Share != nil && !d.name.IsPartition()
	if d.hasNamespaces() {
		client.Namespace = namespaceName(d.claim, d.result.ShareID, t)
	}
	var err error
	if t.Limit, err = d.limit(config.Containers); t.Limit != nil {
		client.MemoryLimit = 0 // the limit of the container takes its place
	}
	return t, err
}

// checkProcesses returns an error if a share declares more processes than its part of
// the device's MPS clients: it would take those of other shares, which the scheduler
// allocates by their memory.
func (d deviceRequest) checkProcesses(declared int) error {
	all, admitted := uint64(d.all.Value()), maxClients(d.gpu.GPU, d.name)
	most := gpu.MPSClientsOfShare(admitted, d.share.Memory, all)
	if declared <= most {
		return nil
	}
	remedy := fmt.Sprintf("declare %d in the ShareConfig", most)
	if declared <= admitted {
		steps := (uint64(declared)*all/uint64(admitted) + catalog.MemoryStep - 1) / catalog.MemoryStep
		remedy += fmt.Sprintf(", or ask for %s of memory", inBytes(min(all, steps*catalog.MemoryStep)))
	}
	return fmt.Errorf("processes: %w: a share of %s has %d of the %d processes that MPS admits at a time to the device with %s, and the ShareConfig declares %d; %s",
		gpu.ErrInvalid, inBytes(d.share.Memory), most, admitted, d.all.String(), declared, remedy)
}

// shareSize is the size of an MPS share, from which the limits of its processes follow.
// Memory is in bytes.
type shareSize struct {
	memory, all uint64 // of the share and of its device
	compute     int    // percent of the multiprocessors, 0 if the claim named none
	burst       bool   // a share that names no compute is not limited
	processes   int
}

// limitsOf returns the limits of each process of a share. All processes together use
// no more than the share. MPS counts the contexts of the processes too, as was measured with
// the releases 580 (H200) and 615 (RTX PRO 6000).
//
//	memory   share / processes, rounded down to whole Mi
//	threads  compute / processes, rounded down; at least 1
//
// A share that names no compute has as large a part of it as of the memory. A share has at most
// as many processes as [deviceRequest.checkProcesses] admits, so each has memory.
func limitsOf(s shareSize) share.Client {
	processes := uint64(max(1, s.processes))
	c := share.Client{Processes: int(processes)}
	c.MemoryLimit = s.memory / processes / catalog.MemoryStep * catalog.MemoryStep
	percent := uint64(s.compute)
	switch {
	case percent > 0:
	case s.burst:
		return c
	default:
		percent = 100 * s.memory / s.all
	}
	c.ThreadPercentage = int(max(1, percent/processes))
	return c
}

// maxClients returns the number of MPS clients that a device admits at a time.
func maxClients(g gpu.GPU, name kind.Name) int {
	if !name.IsPartition() {
		return gpu.MPSMaxClients
	}
	info, _, _ := name.FindIn(g.MIG)
	return gpu.MPSClients(info.ComputeSlices, g.MIG.ComputeSlices())
}

// memoryOf returns the memory of a device as published, whether the device is
// shared or not.
func (s Settings) memoryOf(g gpu.GPU, name kind.Name, shared bool) (resource.Quantity, error) {
	if !name.IsPartition() {
		return s.Shares.Memory(g, shared), nil
	}
	info, _, known := name.FindIn(g.MIG)
	if !known {
		return resource.Quantity{}, fmt.Errorf("%w: %s has no MIG profile %s at memory slice %d", gpu.ErrNotFound, Describe(name.Address), name.Profile, name.Start)
	}
	return s.Shares.PartitionMemory(g, info, shared), nil
}

// inBytes formats an amount of memory as "10Gi".
func inBytes(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}
