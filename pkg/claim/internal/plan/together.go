// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// togetherTerms returns the terms of whole devices that are configured together: their
// processes are clients of one daemon.
func (in Inputs) togetherTerms(d deviceRequest, all []deviceRequest, config v1alpha1.MPS) (share.Terms, error) {
	if err := in.checkUse(d, use.ByMPS, use.NoMPS); err != nil {
		return share.Terms{}, err
	}
	together := d.companions(all)
	// A namespace has one memory limit for all of its devices.
	namespace := len(config.PerDevice) == 0 && !slices.ContainsFunc(together, func(d deviceRequest) bool { return !d.hasNamespaces() })
	if config.MultiUser && !namespace {
		if err := in.checkMultiUser(); err != nil {
			return share.Terms{}, err
		}
	}
	if len(together) > 1 && d.name.IsPartition() {
		return share.Terms{}, fmt.Errorf("sharing.strategy: %w: MPS for %d devices in one request, and a CUDA process uses one MIG device; make a request of each", gpu.ErrInvalid, len(together))
	}
	client := share.Client{Daemon: together[0].name}
	t := share.Terms{MPS: &client}
	if namespace {
		client.Namespace = namespaceName(d.claim, d.result.ShareID, t)
	}
	if config.ThreadPercentage != nil {
		client.ThreadPercentage = *config.ThreadPercentage
	}
	var err error
	if client.MemoryLimit, err = d.memoryLimit(together, all, config); err != nil {
		return t, err
	}
	if client.MemoryLimit > uint64(d.all.Value()) {
		return t, fmt.Errorf("sharing.mps: %w: a memory limit of %s for a process, and the device has %s", gpu.ErrInvalid, inBytes(client.MemoryLimit), d.all.String())
	}
	return t, nil
}

// memoryLimit returns the memory limit of the configuration for the device in bytes, 0 for
// none.
func (d deviceRequest) memoryLimit(together, all []deviceRequest, config v1alpha1.MPS) (uint64, error) {
	most := uint64(0)
	if config.MemoryLimit != nil {
		most = uint64(config.MemoryLimit.Value())
	}
	counted := d.counted(together)
	entries := make(map[string]int, len(config.PerDevice)) // by the device that they name
	for i, limit := range config.PerDevice {
		field, counts := d.limitField(i, limit.Device)
		named, err := d.named(limit.Device, counted, all)
		if err != nil {
			return 0, fmt.Errorf("%s: %w; %s %d devices, counted from 0", field, err, counts, len(counted))
		}
		if i, twice := entries[named]; twice {
			before, _ := d.limitField(i, config.PerDevice[i].Device)
			return 0, fmt.Errorf("%s: %w: %s names the device of %s again; leave one of the two out", field, gpu.ErrInvalid, limit.Device, before)
		}
		entries[named] = i
		if named == d.result.Device {
			most = uint64(limit.MemoryLimit.Value())
		}
	}
	return most, nil
}

// named returns the device that the configuration names: by its index among the
// counted devices, or by its UUID among all devices of the configuration.
func (d deviceRequest) named(ref v1alpha1.DeviceRef, counted, all []deviceRequest) (string, error) {
	if index, numbered := ref.Index(); numbered {
		if index < 0 || index >= len(counted) {
			return "", fmt.Errorf("%w: %s", gpu.ErrInvalid, ref)
		}
		return counted[index].result.Device, nil
	}
	for _, other := range all {
		if other.origin == d.origin && other.uuid() == string(ref) {
			return other.result.Device, nil
		}
	}
	return "", fmt.Errorf("%w: %s is none of the devices that this configuration is for; name them by their index", gpu.ErrInvalid, ref)
}

// checkMultiUser returns an error if MPS serves one user at a time.
func (in Inputs) checkMultiUser() error {
	if in.MultiUserErr != nil {
		return fmt.Errorf("multiUser: %w", in.MultiUserErr)
	}
	if !in.MultiUser {
		return fmt.Errorf("multiUser: %w: MPS on this node serves one user at a time; leave it out, or ask the administrator for mps.multiUser: true in the chart's values (--multi-user of gpu-mps-supervisor)", gpu.ErrNotSupported)
	}
	return nil
}
