// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// View is a snapshot of the state of the node's GPUs.
type View struct {
	// Node has each GPU that has answered since the agent started, in order of the
	// PCI address, without what claims have made of it. A GPU that does not answer
	// now is in it as it last answered, without links.
	Node gpu.Node
	// Health of each GPU of Node, in order of the device's name.
	Health []DeviceHealth
	// Scanned is set once a scan has ended, with whatever result.
	Scanned bool
	// Answering is the number of GPUs that answer.
	Answering int
	// Unreadable is the number of GPUs that could not be read in the last scan that
	// succeeded.
	Unreadable int
	// ScanErr is why the last scan failed as a whole; nil if it succeeded.
	ScanErr error
	// Missing says which GPUs do not answer, Faults which GPUs are faulty, Topology which
	// facts about the place and the links of GPUs are missing or contradictory, and
	// Repairs which entries of the annotation have no effect. Each is nil if there
	// are none.
	Missing, Faults, Topology, Repairs error
}

// DeviceHealth is the health of a device.
type DeviceHealth struct {
	// Name of the device.
	Name string
	// Address and UUID of its GPU; unused for a device that is all GPUs.
	Address gpu.PCIAddress
	UUID    string
	Healthy bool
	// Reason is the value of the taint of an unhealthy device, such as "xid-79" or
	// "lost"; empty if healthy.
	Reason string
	// Message says the same in a sentence.
	Message string
}

// View returns the current state.
func (i *Inventory) View() View {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.view()
}

// view returns the current state. Callers hold mu.
func (i *Inventory) view() View {
	return View{
		Node:       i.known.node(),
		Health:     i.known.devices(),
		Scanned:    i.known.attempted,
		Answering:  len(i.known.answer()),
		Unreadable: i.known.unreadableCount,
		ScanErr:    i.known.scanErr,
		Missing:    i.known.missing(),
		Faults:     i.known.failed(),
		Topology:   i.known.topology(),
		Repairs:    errors.Join(i.repairSyntax, i.repairErr),
	}
}

// Unhealthy returns the reason for each GPU that new claims must not get.
func (v View) Unhealthy() map[gpu.PCIAddress]string {
	unhealthy := map[gpu.PCIAddress]string{}
	for _, d := range v.Health {
		if !d.Healthy {
			unhealthy[d.Address] = d.Reason
		}
	}
	return unhealthy
}

// AllGPUs returns the health of a device that is all GPUs. It is healthy while one
// of them answers.
func (v View) AllGPUs(name string) DeviceHealth {
	if v.Answering == 0 {
		return DeviceHealth{Name: name, Reason: "lost", Message: "no GPU of the node answers"}
	}
	return DeviceHealth{Name: name, Healthy: true}
}

// String returns a line such as "NoDriver; load libnvidia-ml.so.1: not ready".
func (v View) String() string {
	var line string
	switch {
	case len(v.Health) > 0:
		line = fmt.Sprintf("%d of %d GPUs answer", v.Answering, len(v.Health))
	case errors.Is(v.ScanErr, gpu.ErrNotReady):
		line = "NoDriver"
	case v.ScanErr != nil || !v.Scanned:
		line = "Looking"
	default:
		line = "NoGPUs"
	}
	if err := errors.Join(v.Missing, v.Faults); err != nil {
		line += "; " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return line
}

// GPU returns the GPU at the address as of its last scan. The MIG mode and the
// partitions are the administrator's; changes by claims are left out. It waits for the
// first scan that succeeds. If ctx ends before, the error wraps [gpu.ErrNotReady] and
// describes the state of the node. It returns [gpu.ErrNotFound] if the node has no
// such GPU, and [gpu.ErrLost], [gpu.ErrTimeout] or [gpu.ErrNotReady] if the GPU does
// not answer.
func (i *Inventory) GPU(ctx context.Context, address gpu.PCIAddress) (gpu.GPU, error) {
	if err := i.waitScanned(ctx); err != nil {
		return gpu.GPU{}, fmt.Errorf("GPU at %s: %w", address, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known.find(address)
}

// GPUs returns the GPUs that answer, in order of the PCI address, each as GPU does,
// and waits as GPU does. The error wraps [gpu.ErrNotReady] if there are none.
func (i *Inventory) GPUs(ctx context.Context) ([]gpu.GPU, error) {
	if err := i.waitScanned(ctx); err != nil {
		return nil, fmt.Errorf("GPUs of the node: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	gpus := i.known.answer()
	if len(gpus) == 0 {
		return nil, fmt.Errorf("GPUs of the node: %w: none answers: %s", gpu.ErrNotReady, i.view())
	}
	return gpus, nil
}

// waitScanned waits for the first scan that succeeds.
func (i *Inventory) waitScanned(ctx context.Context) error {
	select {
	case <-i.scanned:
		return nil
	default:
	}
	select {
	case <-i.scanned:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %s", gpu.ErrNotReady, i.View())
	}
}
