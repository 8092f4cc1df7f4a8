// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// h100 returns a node of n H100 GPUs behind NVSwitch. The first eight are on the
// buses of a DGX H100.
func h100(t testing.TB, n int) gpu.Node {
	t.Helper()
	buses := []uint8{0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}
	node := gpu.Node{DriverVersion: "570.86.15", CUDADriverVersion: gpu.Version{Major: 12, Minor: 8}}
	for i := range n {
		address := gpu.PCIAddress{Domain: uint32(i / 8), Bus: buses[i%8]}
		g := gpu.GPU{
			Address:           address,
			UUID:              fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i),
			Index:             i,
			Minor:             i,
			ProductName:       "NVIDIA H100 80GB HBM3",
			Brand:             "Nvidia",
			Architecture:      "Hopper",
			ComputeCapability: gpu.Version{Major: 9},
			MemoryBytes:       81559 << 20,
			Multiprocessors:   132,
			NUMANode:          ptr(i % 8 / 4),
			PCIeRoot:          fmt.Sprintf("pci%04x:%02x", address.Domain, address.Bus-3),
			MIG:               gpu.MIG{Capable: true},
			ECCEnabled:        ptr(true),
			PersistenceMode:   ptr(true),
			AddressingMode:    "None",
			ComputeMode:       gpu.ComputeModeDefault,
		}
		for number := range 18 {
			g.Links = append(g.Links, gpu.Link{Number: number, Active: true, Remote: gpu.RemoteSwitch})
		}
		node.GPUs = append(node.GPUs, g)
	}
	return node
}

// meshed returns a node of GPUs on the given buses with n direct links for each
// listed pair.
func meshed(t testing.TB, buses []uint8, pairs ...[3]int) gpu.Node {
	t.Helper()
	node := h100(t, 0)
	for i, bus := range buses {
		node.GPUs = append(node.GPUs, gpu.GPU{
			Address:     gpu.PCIAddress{Bus: bus},
			UUID:        fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i),
			ProductName: "Tesla V100-SXM2-32GB",
			MemoryBytes: 32 << 30,
		})
	}
	for _, pair := range pairs {
		a, b := &node.GPUs[pair[0]], &node.GPUs[pair[1]]
		for range pair[2] {
			a.Links = append(a.Links, gpu.Link{Number: len(a.Links), Active: true, Remote: gpu.RemoteGPU, RemoteAddress: &b.Address})
			b.Links = append(b.Links, gpu.Link{Number: len(b.Links), Active: true, Remote: gpu.RemoteGPU, RemoteAddress: &a.Address})
		}
	}
	return node
}

func dgx1(t testing.TB) gpu.Node {
	return meshed(t, []uint8{0x06, 0x07, 0x0a, 0x0b, 0x85, 0x86, 0x89, 0x8a},
		[3]int{0, 1, 1}, [3]int{0, 2, 1}, [3]int{0, 3, 2}, [3]int{0, 4, 2}, [3]int{1, 2, 2}, [3]int{1, 3, 1},
		[3]int{1, 5, 2}, [3]int{2, 3, 2}, [3]int{2, 6, 1}, [3]int{3, 7, 1}, [3]int{4, 5, 1}, [3]int{4, 6, 1},
		[3]int{4, 7, 2}, [3]int{5, 6, 2}, [3]int{5, 7, 1}, [3]int{6, 7, 2})
}

func bridges(t testing.TB) gpu.Node {
	return meshed(t, []uint8{0x17, 0x31, 0xb1, 0xca}, [3]int{0, 1, 4}, [3]int{2, 3, 4})
}

func ptr[T any](v T) *T { return &v }
