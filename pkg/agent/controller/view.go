// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// State returns the present state.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Devices returns the health of all published devices, ordered by name.
func (c *Controller) Devices() []state.DeviceHealth {
	now := c.options.State.Snapshot()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices(now)
}

// Published returns the published devices and their counters. They must not be changed.
func (c *Controller) Published() []resourceslice.Slice {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []resourceslice.Slice
	if c.published != nil {
		for _, pool := range c.published.Pools {
			all = append(all, pool.Slices...)
		}
	}
	return all
}

// Capacities returns the capacities of all published devices by name. They must not be
// changed.
func (c *Controller) Capacities() map[string]kind.Capacities {
	all := map[string]kind.Capacities{}
	for _, slice := range c.Published() {
		for _, device := range slice.Devices {
			all[device.Name] = device.Capacity
		}
	}
	return all
}

// devices returns the health of each published device; before the first time, of each
// known GPU. Callers hold mu.
func (c *Controller) devices(now state.Snapshot) []state.DeviceHealth {
	if c.published == nil {
		return now.Health()
	}
	gpus := map[gpu.PCIAddress]state.DeviceHealth{}
	for _, d := range now.Health() {
		gpus[d.Name.Address] = d
	}
	var devices []state.DeviceHealth
	for _, pool := range c.published.Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				name, err := kind.Parse(device.Name)
				if err != nil {
					continue
				}
				if name.Kind.Scope() == kind.ScopeNode {
					devices = append(devices, now.AllGPUs(name))
					continue
				}
				if d, known := gpus[name.Address]; known {
					d.Name = name
					devices = append(devices, d)
				}
			}
		}
	}
	slices.SortFunc(devices, func(a, b state.DeviceHealth) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return devices
}

// Subscribe returns a channel that has an item after a change, until cancel is
// called. Changes are of the published devices or of the health of one.
func (c *Controller) Subscribe() (changed <-chan struct{}, cancel func()) {
	return c.changes.Subscribe()
}
