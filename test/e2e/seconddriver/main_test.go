// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/cpuset"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTheFileHasTheDevicesOfTheSimulatedMachine(t *testing.T) {
	model, err := nvmlsim.LoadModel("dgx-h100")
	must(t, err)
	var want []string
	for _, n := range model.NICs {
		want = append(want, fmt.Sprintf("dra.net: %s %s %s on %s", n.Address, n.Interface, n.RDMA, n.PCIeRoot))
	}
	for i, n := range model.NUMANodes {
		cpus, err := cpuset.Parse(n.CPUs)
		must(t, err)
		want = append(want, fmt.Sprintf("dra.cpu: %d CPUs of socket %d on NUMA node %d", cpus.Size(), n.Socket, i))
	}
	specs, err := read("dgx-h100.yaml")
	must(t, err)
	var got []string
	for _, s := range specs {
		for _, device := range s.Devices {
			got = append(got, s.Driver+": "+describe(device.Attributes, device.Capacity))
		}
	}
	require.Same(t, "dgx-h100.yaml differs from the simulator's model", want, got)
}

// describe returns a NIC or CPUs as text. It panics if an attribute is missing.
func describe(a map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, c map[resourceapi.QualifiedName]resourceapi.DeviceCapacity) string {
	if cpus, ok := c["dra.cpu/cpu"]; ok {
		return fmt.Sprintf("%s CPUs of socket %d on NUMA node %d", cpus.Value.String(), *a["dra.cpu/socketID"].IntValue, *a["resource.kubernetes.io/numaNode"].IntValue)
	}
	return fmt.Sprintf("%s %s %s on %s", *a["dra.net/pciAddress"].StringValue, *a["dra.net/ifName"].StringValue,
		*a["dra.net/rdmaDevice"].StringValue, *a["resource.kubernetes.io/pcieRoot"].StringValue)
}

var must = require.NoError
