package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// This file is what others see of a controller.

// State gives the present state.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Devices gives the status of all published devices, ordered by name.
func (c *Controller) Devices() []DeviceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices()
}

// devices gives every GPU that is known, and its parts and time slices, and all
// GPUs together, as far as they are published. Callers hold mu.
func (c *Controller) devices() []DeviceStatus {
	devices := c.inventory.devices()
	if c.published == nil {
		return devices
	}
	whole := map[gpu.PCIAddress]DeviceStatus{}
	for _, d := range devices {
		whole[d.Address] = d
	}
	for _, pool := range c.published.Pools {
		for _, slice := range pool.Slices {
			for _, device := range slice.Devices {
				name, err := kind.Parse(device.Name)
				if name.Kind == kind.Monitor {
					devices = append(devices, c.inventory.all(device.Name))
					continue
				}
				if d, known := whole[name.Address]; err == nil && known && name.Kind != kind.GPU {
					d.Name = device.Name
					devices = append(devices, d)
				}
			}
		}
	}
	slices.SortFunc(devices, func(a, b DeviceStatus) int { return strings.Compare(a.Name, b.Name) })
	return devices
}

// Subscribe gives a channel that has an item after what is published or the
// health of a device has changed, until cancel is called.
func (c *Controller) Subscribe() (changed <-chan struct{}, cancel func()) {
	channel := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers[channel] = true
	return channel, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subscribers, channel)
	}
}

// notify tells the subscribers. Callers hold mu.
func (c *Controller) notify() {
	for channel := range c.subscribers {
		select {
		case channel <- struct{}{}:
		default: // an item is waiting already
		}
	}
}

// GPU gives the GPU at the address as it was last seen, without what claims have
// made of it: its MIG mode is the administrator's, and so are its partitions.
// Before the first look
// has succeeded it waits for it; if ctx ends first, the error wraps
// [gpu.ErrNotReady] and says what is known. [gpu.ErrNotFound] means that the
// node has no such GPU, and [gpu.ErrLost], [gpu.ErrTimeout] or
// [gpu.ErrNotReady] that it has one that does not answer now.
func (c *Controller) GPU(ctx context.Context, address gpu.PCIAddress) (gpu.GPU, error) {
	if err := c.waitLooked(ctx); err != nil {
		return gpu.GPU{}, fmt.Errorf("GPU at %s: %w", address, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inventory.find(address)
}

// GPUs gives those that answer, in order of the PCI address, each as
// [Controller.GPU] does and waiting like that. The error wraps
// [gpu.ErrNotReady] where there are none.
func (c *Controller) GPUs(ctx context.Context) ([]gpu.GPU, error) {
	if err := c.waitLooked(ctx); err != nil {
		return nil, fmt.Errorf("GPUs of the node: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gpus := c.inventory.answer()
	if len(gpus) == 0 {
		return nil, fmt.Errorf("GPUs of the node: %w: none answers: %s", gpu.ErrNotReady, c.state)
	}
	return gpus, nil
}

// waitLooked waits for the first look that succeeds.
func (c *Controller) waitLooked(ctx context.Context) error {
	select {
	case <-c.looked:
		return nil
	default:
	}
	select {
	case <-c.looked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %s", gpu.ErrNotReady, c.State())
	}
}

// Attributes gives the attributes with which a device is published, nil if it
// is not known.
func (c *Controller) Attributes(name kind.Name) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalog.Attributes(c.inventory.node(), name)
}
