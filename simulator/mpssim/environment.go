// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"os"
	"strings"
)

// OptionsFromEnvironment returns the options that the variables of MPS set.
func OptionsFromEnvironment() Options {
	o := Options{
		PipeDirectory:          os.Getenv("CUDA_MPS_PIPE_DIRECTORY"),
		LogDirectory:           os.Getenv("CUDA_MPS_LOG_DIRECTORY"),
		Shm:                    "/dev/shm",
		ActiveThreadPercentage: os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
		PinnedDeviceMemLimit:   os.Getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
	}
	if o.PipeDirectory == "" {
		o.PipeDirectory = DefaultPipeDirectory
	}
	if o.LogDirectory == "" {
		o.LogDirectory = DefaultLogDirectory
	}
	if devices := os.Getenv("CUDA_VISIBLE_DEVICES"); devices != "" {
		o.VisibleDevices = strings.Split(devices, ",")
	}
	return o
}
