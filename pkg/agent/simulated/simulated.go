// SPDX-License-Identifier: Apache-2.0

// Package simulated opens the simulated GPUs of a node. Programs import it only if
// they are built with the tag sim, so that production programs hold no simulator.
package simulated

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// Library opens the GPUs of a model, with their state in dir, and returns their
// library. It also returns the root of the file system that shows them. The library
// may reset GPUs if allowReset is set.
func Library(model, dir string, allowReset bool, options ...nvml.Option) (*nvml.Library, string, error) {
	sim, err := open(model, dir)
	if err != nil {
		return nil, "", err
	}
	if allowReset {
		options = append(options, nvml.AllowReset(func(_ context.Context, address gpu.PCIAddress) error {
			index, err := sim.FindGPU(address.String())
			if err != nil {
				return err
			}
			return sim.ResetGPU(index)
		}))
	}
	return nvml.New(sim.NVML(), options...), sim.Root(), nil
}

// Root opens the GPUs of a model, with their state in dir. It returns the root of
// the file system that shows them and their driver.
func Root(model, dir string) (string, error) {
	sim, err := open(model, dir)
	if err != nil {
		return "", err
	}
	return sim.Root(), nil
}

func open(model, dir string) (*nvmlsim.Sim, error) {
	m, err := nvmlsim.LoadModel(model)
	if err != nil {
		return nil, err
	}
	s, err := nvmlsim.OpenOrCreate(dir, m)
	if err != nil {
		return nil, err
	}
	if path := findGPUSim(); path != "" {
		// A process that may not change the node uses the programs as they are.
		if err := s.InstallPrograms(path); err != nil && !errors.Is(err, gpu.ErrPermission) {
			return nil, err
		}
	}
	return s, nil
}

// findGPUSim returns the path of gpu-sim, or "" if there is none. It reads GPU_SIM,
// and searches the folder of this executable and the path.
func findGPUSim() string {
	if path := os.Getenv("GPU_SIM"); path != "" {
		return path
	}
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), "gpu-sim")
		if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
			return sibling
		}
	}
	path, err := exec.LookPath("gpu-sim")
	if err != nil {
		return ""
	}
	return path
}
