// SPDX-License-Identifier: Apache-2.0

// Package memoryhook limits the memory that a container has of a GPU when a container
// runtime creates it. The cgroup of the container exists then, and its process does not
// run yet. The runtime does not start a container whose hook fails.
//
// The hook makes no call into the driver itself: a process that hangs in the driver cannot be
// killed, and would make the runtime wait as well. The agent makes the call, as it has the
// driver open. If the agent is away or busy, a child process makes it.
package memoryhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	ocispec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// mostState is the limit for the state of a container in bytes. Annotations are the
// largest part of it.
const mostState = 8 << 20

// Hook limits the memory of one container.
type Hook struct {
	// Limits has the limits of the other containers.
	Limits containerlimits.Folder
	// Device is the CDI device by which the container uses the GPU.
	Device string
	// GPU is the GPU of the device. Bytes is the memory limit per container, and
	// Containers the maximum number of containers at a time.
	GPU        gpu.PCIAddress
	Bytes      uint64
	Containers int
	// Timeout is the time for the call into the driver.
	Timeout time.Duration
	// CgroupOf returns the folder of the cgroup of the container's first process.
	CgroupOf func(pid int) (folder string, err error)
	// Set sets the limit of the container. A process that it starts inherits the lock, which
	// lasts until that process has ended.
	Set func(ctx context.Context, lock *os.File, l containerlimits.Limit) error
}

// Run reads the state of the container, as runtimes pass it to hooks, and limits its
// memory. After an error the container does not count as a user of the device.
func (h Hook) Run(ctx context.Context, state io.Reader) (err error) {
	c, err := readState(state)
	if err != nil {
		return err
	}
	group, err := h.CgroupOf(c.Pid)
	if err != nil {
		return err
	}
	// Not the process' own: a process can leave one below the container's.
	folder := cgroup.ContainerGroup(group)
	if folder == "" {
		return fmt.Errorf("cgroup %s: %w: the container has no cgroup of its own below its pod's", group, gpu.ErrNotSupported)
	}
	id, err := cgroup.Lookup(folder)
	if err != nil {
		return err
	}
	if id == cgroup.RootID {
		return fmt.Errorf("cgroup %s: %w: the container has no cgroup of its own", folder, gpu.ErrNotSupported)
	}
	l := containerlimits.Limit{Cgroup: folder, ID: id, GPU: h.GPU.String(), Bytes: h.Bytes}
	bytes, err := h.Limits.Admit(h.Device, l, h.Containers)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	all := l
	all.Bytes = bytes
	if err := h.set(ctx, all); err != nil {
		return errors.Join(err, h.Limits.Leave(h.Device, l))
	}
	return nil
}

// set sets the limit of the container, one process at a time.
func (h Hook) set(ctx context.Context, l containerlimits.Limit) error {
	t, err := lockCalls(ctx, filepath.Join(string(h.Limits), h.GPU.String()+".lock"), h.Timeout)
	if err != nil {
		return err
	}
	err = h.Set(ctx, t.File, l)
	if err != nil && ctx.Err() != nil {
		return errors.Join(err, t.abandon())
	}
	return errors.Join(err, t.end())
}

func readState(from io.Reader) (ocispec.State, error) {
	var c ocispec.State
	if err := json.NewDecoder(io.LimitReader(from, mostState)).Decode(&c); err != nil {
		return c, fmt.Errorf("state of the container on the standard input: %w: %w", gpu.ErrInvalid, err)
	}
	if c.Pid <= 0 {
		return c, fmt.Errorf("state of the container %q: %w: it has no process", c.ID, gpu.ErrInvalid)
	}
	return c, nil
}
