// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/sysfs"
)

// hardware is the node's GPUs, real or simulated, behind one library.
type hardware struct {
	*nvml.Library
	// machine is where the kernel tells of them.
	machine sysfs.Root
	roots   cdi.Roots
	// timeSlices of the GPUs, which NVML does not tell.
	timeSlices claim.TimeSlicing
	// remove what only this process used.
	remove func() error
}

// simulator opens the simulated GPUs of a model, whose state is in stateDir. It
// returns their library, which may reset GPUs if allowReset is set, and the root of
// the file system that shows them.
type simulator func(model, stateDir string, allowReset bool) (library *nvml.Library, root string, err error)

// openHardware opens the GPUs' library. It calls nothing of real GPUs yet: the driver
// may be loaded later.
func openHardware(o *options) (*hardware, error) {
	model, simulated := o.simulated()
	if !simulated {
		library := nvml.Open(o.driverRoot)
		if o.migAllowReset {
			library.AllowReset(nvml.ResetWith(gpu.DriverRoot(o.driverRoot)))
		}
		return &hardware{
			Library:    library,
			machine:    "/",
			roots:      cdi.Roots{Driver: o.driverRoot, Dev: o.devRoot, HostDriver: o.hostDriverRoot, HostDev: o.hostDevRoot},
			timeSlices: nvml.NewSMI(gpu.DriverRoot(o.driverRoot)),
			remove:     func() error { return nil },
		}, nil
	}
	dir, remove := o.simState, func() error { return nil }
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "gpu-sim-"); err != nil {
			return nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	library, root, err := o.simulator(model, dir, o.migAllowReset)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--hardware=%s: %w", o.hardware, err), remove())
	}
	return &hardware{
		Library:    library,
		machine:    sysfs.Root(root),
		roots:      cdi.Roots{Driver: root, Dev: root},
		timeSlices: nvml.NewSMI(gpu.DriverRoot(root)),
		remove:     remove,
	}, nil
}

// Snapshot is the library's, with what the kernel tells of each GPU's place.
func (h *hardware) Snapshot(ctx context.Context) (gpu.Node, error) {
	return h.locate(ctx, h.Library.Snapshot)
}

// SnapshotOfAll is the library's, with what the kernel tells of each GPU's place.
func (h *hardware) SnapshotOfAll(ctx context.Context) (gpu.Node, error) {
	return h.locate(ctx, h.Library.SnapshotOfAll)
}

func (h *hardware) locate(ctx context.Context, snapshot func(context.Context) (gpu.Node, error)) (gpu.Node, error) {
	node, err := snapshot(ctx)
	if err != nil {
		return node, err
	}
	located, err := h.machine.Locate(node)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The kernel does not tell where every GPU is; they are published without that", "err", err)
	}
	return located, nil
}

// localDevRoot holds dev as this process sees it.
func (h *hardware) localDevRoot() string { return cmp.Or(h.roots.Dev, "/") }

// hostDevRoot holds dev as the container runtime sees it.
func (h *hardware) hostDevRoot() string { return cmp.Or(h.roots.HostDev, h.roots.Dev) }

// close lets go of the library. One in which a call is under way stays as it is:
// the process ends all the same.
func (h *hardware) close() error {
	err := h.Close()
	if errors.Is(err, gpu.ErrInUse) {
		err = nil
	}
	return errors.Join(err, h.remove())
}
