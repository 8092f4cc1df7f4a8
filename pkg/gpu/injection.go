// SPDX-License-Identifier: Apache-2.0

package gpu

// Injection is what one prepared device brings into the containers that use
// it, in terms of the host. The runtime's driver files come on top of it.
type Injection struct {
	// ID is unique on the node and over time: the name part of the CDI device.
	ID string
	// DeviceNodes are container paths under /dev, such as "/dev/nvidia0".
	DeviceNodes []string
	// Env holds "NAME=value" entries.
	Env []string
	// Mounts are bind mounts from the host.
	Mounts []Mount
	// Annotations say of the device what a later reader of the spec has to know;
	// containers do not get them. The keys are without a prefix.
	Annotations map[string]string
}

// Mount is a bind mount into a container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}
