// SPDX-License-Identifier: Apache-2.0

//go:build !sim

package main

import (
	"flag"

	"github.com/gpu-dra/gpu-dra-driver/pkg/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
)

// hardware is the GPUs of the driver that is installed in a folder.
type hardware struct{ driverRoot string }

func (h *hardware) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&h.driverRoot, "driver-root", "/", "folder of the driver's installation")
}

func (h *hardware) open() (*nvml.Library, error) { return nvml.Open(h.driverRoot), nil }

func (h *hardware) cgroupOf(pid int, container string) (string, error) {
	return memoryhook.CgroupOf(pid, container)
}
