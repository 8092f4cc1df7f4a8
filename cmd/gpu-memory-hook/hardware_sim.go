// SPDX-License-Identifier: Apache-2.0

//go:build sim

package main

import (
	"context"
	"flag"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// hardware is the simulated GPUs whose state is in the driver root. It implements
// [memoryhook.Hardware].
type hardware struct{ driverRoot string }

// AddFlags implements [memoryhook.Hardware].
func (h *hardware) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&h.driverRoot, "driver-root", "", "folder of the simulated node's file system")
}

// SetMemoryLimit implements [memoryhook.Hardware].
func (h *hardware) SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error {
	sim, err := nvmlsim.Open(h.driverRoot)
	if err != nil {
		return err
	}
	return nvml.New(sim.NVML()).SetMemoryLimit(ctx, address, folder, bytes)
}

// CgroupOf moves a container into its own cgroup of version 2 if its runtime uses
// version 1.
func (h *hardware) CgroupOf(pid int, container string) (string, error) {
	return nvmlsim.PlaceInOwnCgroup(pid, container)
}
