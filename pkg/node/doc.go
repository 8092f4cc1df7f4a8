// SPDX-License-Identifier: Apache-2.0

// Package node is the storey of the adapters: each folder translates one interface of a vendor or
// of the kernel into the values of package gpu, and decides nothing.
//
//	nvml             NVIDIA's library and nvidia-smi
//	sysfs, procfs    places of devices; processes and their open files
//	cgroup           which pod and container a process belongs to, and which pods live
//	kernellog        faults that the kernel logs
//	nodefacts        settings of the host
//	cdi              specs for the container runtime
//	podresources     what the kubelet has given to containers
//	containerlimits  the memory limits of containers; memoryhook sets them
//
// They import pkg/gpu, plain files, and each other, and nodefacts what api/agent/v1 says of a node. pkg/agent joins them to the packages that decide.
package node
