// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
)

// hardware is the GPUs of the driver that is installed in a folder. It implements
// [memoryhook.Hardware].
type hardware struct{ driverRoot string }

// AddFlags implements [memoryhook.Hardware].
func (h *hardware) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&h.driverRoot, "driver-root", "/", "folder of the driver's installation")
}

// SetMemoryLimit implements [memoryhook.Hardware].
func (h *hardware) SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error {
	return nvml.Open(h.driverRoot).SetMemoryLimit(ctx, address, folder, bytes)
}
