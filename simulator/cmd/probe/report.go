// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report is the document that the probe prints. Lists are sorted by path.
type report struct {
	Hostname string `json:"hostname"`
	// Devices are the nodes of the NVIDIA driver under /dev.
	Devices []device `json:"devices"`
	// Env holds the variables whose names begin with NVIDIA_, CUDA_ or GPU_.
	Env map[string]string `json:"env"`
	// Libraries are the driver's libraries found in the usual directories.
	Libraries []library `json:"libraries"`
	// Metadata is what DRA device metadata files say, a device each.
	Metadata []metadata `json:"metadata"`
}

// root is the directory that stands for "/".
type root string

func (r root) path(path string) string { return filepath.Join(string(r), path) }

// outside returns a path as the container sees it.
func (r root) outside(path string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(path, string(r)), "/")
}

func look(r root, environ []string) (report, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return report{}, err
	}
	devices, err := readDevices(r)
	if err != nil {
		return report{}, fmt.Errorf("devices: %w", err)
	}
	libraries, err := lookAtLibraries(r)
	if err != nil {
		return report{}, fmt.Errorf("libraries: %w", err)
	}
	all, err := lookAtMetadata(r)
	if err != nil {
		return report{}, fmt.Errorf("device metadata: %w", err)
	}
	return report{
		Hostname:  hostname,
		Devices:   devices,
		Env:       environment(environ),
		Libraries: libraries,
		Metadata:  all,
	}, nil
}

func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if slices.ContainsFunc([]string{"NVIDIA_", "CUDA_", "GPU_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			env[name] = value
		}
	}
	return env
}
