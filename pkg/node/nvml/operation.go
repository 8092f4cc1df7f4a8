// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Check returns nil if the GPU at the address answers. A healthy GPU answers within
// microseconds; Check waits two seconds. The error wraps [gpu.ErrLost] if the GPU
// fell off the bus or needs a reset, [gpu.ErrTimeout] if it hangs, [gpu.ErrNotReady]
// if the driver is not loaded, and [gpu.ErrNotFound] if the node has no such GPU.
func (l *Library) Check(ctx context.Context, address gpu.PCIAddress) error {
	_, err := onGPUWithin(ctx, answerLimit, l, address, "check", func(device nvml.Device) (struct{}, error) {
		// NVML reads this from the GPU, but returns the identity from its cache. A GPU without
		// memory of its own answers that it has none.
		_, err := memoryOf(device)
		if errors.Is(err, gpu.ErrNotSupported) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// onGPU runs call for the GPU at the address, one call at a time for each GPU. Errors
// name the operation and the GPU.
func onGPU[T any](ctx context.Context, l *Library, address gpu.PCIAddress, operation string, call func(nvml.Device) (T, error)) (T, error) {
	return onGPUWithin(ctx, callLimit, l, address, operation, call)
}

// onGPUWithin is onGPU with another limit for the call.
func onGPUWithin[T any](ctx context.Context, limit time.Duration, l *Library, address gpu.PCIAddress, operation string, call func(nvml.Device) (T, error)) (T, error) {
	var none T
	operation = fmt.Sprintf("%s GPU at %s", operation, address)
	s, err := l.find(ctx, address)
	if err != nil {
		return none, fmt.Errorf("%s: %w", operation, err)
	}
	lib, err := l.started(ctx)
	if err != nil {
		return none, fmt.Errorf("%s: %w", operation, err)
	}
	value, err := doWithin(ctx, s.guard, limit, operation, func() (T, error) {
		device, ret := lib.DeviceGetHandleByPciBusId(address.String())
		if err := required(operation, ret); err != nil {
			return none, err
		}
		value, err := call(device)
		if err != nil {
			return none, fmt.Errorf("%s: %w", operation, err)
		}
		return value, nil
	})
	// A GPU can be lost without an XID. Only a scan takes it out of service.
	if errors.Is(err, gpu.ErrLost) && s.doubt() {
		l.notify()
	}
	return value, err
}

// find returns the slot of the GPU at the address. If the address of no GPU read so
// far matches, find reads all GPUs. It returns [gpu.ErrNotFound] only if all of them
// could be read, because an unreadable one may be the GPU.
func (l *Library) find(ctx context.Context, address gpu.PCIAddress) (*slot, error) {
	if s := l.slotAt(address); s != nil {
		return s, nil
	}
	head, err := l.readNode(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel() // so that Wait returns at once
		all.Wait()
	}()
	readings := make(chan reading, head.count)
	for index := range head.count {
		all.Go(func() { readings <- l.readGPU(ctx, head.lib, index) })
	}
	var silent error
	for range head.count {
		r := <-readings
		if s := l.slotAt(address); s != nil {
			return s, nil
		}
		if r.err != nil && r.address == nil {
			silent = r.err
		}
	}
	if silent != nil {
		return nil, silent
	}
	return nil, fmt.Errorf("%w on this node", gpu.ErrNotFound)
}

// slotAt returns the slot of the GPU last read at the address, or nil.
func (l *Library) slotAt(address gpu.PCIAddress) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		if a := s.lastAddress(); a != nil && *a == address {
			return s
		}
	}
	return nil
}
