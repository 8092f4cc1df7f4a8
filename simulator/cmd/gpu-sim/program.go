// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// driverProgram returns the name of the driver's program that this process is. It is empty
// if the process is gpu-sim.
func driverProgram() string {
	names := []string{filepath.Base(os.Args[0])}
	if path, err := self(); err == nil {
		names = append(names, filepath.Base(path))
	}
	i := slices.IndexFunc(names, func(name string) bool {
		return slices.Contains([]string{nvmlsim.SMIName, nvmlsim.MPSControlName, nvmlsim.MPSServerName, nvmlsim.IMEXName, nvmlsim.IMEXControlName}, name)
	})
	if i < 0 {
		return ""
	}
	return names[i]
}

// self returns the absolute path of this program. A root file system without /proc has
// only the name that the program was started with.
func self() (string, error) {
	if path, err := os.Executable(); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
