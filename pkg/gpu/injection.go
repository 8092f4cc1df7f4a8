// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// Injection describes the additions of one prepared device to the containers that
// use it. The files of the driver, which the runtime adds, are not part of it.
type Injection struct {
	// ID is unique on the node and over time: the name part of the CDI device.
	ID string
	// DeviceNodes are container paths under /dev, such as "/dev/nvidia0".
	DeviceNodes []string
	// Env holds "NAME=value" entries.
	Env []string
	// Mounts are bind mounts from the host.
	Mounts []Mount
	// Hooks run on the host when a container is created, before its process starts. A
	// container whose hook fails does not start.
	Hooks []Hook
	// Annotations are written into the CDI spec for later readers; containers do
	// not receive them. The keys are without a prefix.
	Annotations map[string]string
}

// Mount is a bind mount into a container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// Hook is a program on the host.
type Hook struct {
	// Path is absolute. Args are the arguments, of which the first is the name of the
	// program.
	Path string
	Args []string
	// Timeout is in whole seconds.
	Timeout time.Duration
}
