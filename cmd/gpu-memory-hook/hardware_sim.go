// SPDX-License-Identifier: Apache-2.0

//go:build sim

package main

import (
	"flag"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// hardware is the simulated GPUs whose state is in the driver root.
type hardware struct{ driverRoot string }

func (h *hardware) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&h.driverRoot, "driver-root", "", "folder of the simulated node's file system")
}

func (h *hardware) open() (*nvml.Library, error) {
	sim, err := nvmlsim.Open(filepath.Dir(h.driverRoot))
	if err != nil {
		return nil, err
	}
	return nvml.New(sim.NVML()), nil
}

// cgroupOf moves a container whose runtime uses cgroups of version 1 into a cgroup of
// version 2 of its own.
func (h *hardware) cgroupOf(pid int, container string) (string, error) {
	return nvmlsim.PlaceInOwnCgroup(pid, container)
}
