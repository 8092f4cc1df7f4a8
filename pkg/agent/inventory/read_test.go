// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// bus is a PCI bus with GPUs on it.
type bus struct {
	gpus []gpu.PCIAddress
	err  error
}

func (b bus) GPUs() ([]gpu.PCIAddress, error) { return b.gpus, b.err }

func (b bus) Locate(node gpu.Node) (gpu.Node, error) {
	for i := range node.GPUs {
		node.GPUs[i].PCIeRoot = "pci0000:00"
	}
	return node, nil
}

func at(n uint8) gpu.PCIAddress { return gpu.PCIAddress{Bus: n} }

func TestReadFindsGPUsByPCIAndReadsThemByNVML(t *testing.T) {
	two, failed := at(2), errors.New("Unknown Error")
	const missing = "GPU at 0000:03:00.0: GPU lost: it is on the PCI bus and the driver does not list it"
	for name, tc := range map[string]struct {
		bus  bus
		node gpu.Node
		want []string // the problems of the GPUs that cannot be read
	}{
		"NVML lists every GPU": {
			bus: bus{gpus: []gpu.PCIAddress{at(1)}}, node: gpu.Node{GPUs: []gpu.GPU{{Address: at(1)}}},
		},
		"NVML does not list one": {
			bus: bus{gpus: []gpu.PCIAddress{at(1), at(3)}}, node: gpu.Node{GPUs: []gpu.GPU{{Address: at(1)}}},
			want: []string{missing},
		},
		"NVML lists none": {
			bus: bus{gpus: []gpu.PCIAddress{at(3)}}, want: []string{missing},
		},
		"NVML lists one and cannot read it": {
			bus: bus{gpus: []gpu.PCIAddress{at(2)}}, node: gpu.Node{Unreadable: []gpu.Unreadable{{Address: &two, Err: failed}}},
			want: []string{"GPU at 0000:02:00.0: Unknown Error"},
		},
		"NVML returns no address and one is left": {
			bus:  bus{gpus: []gpu.PCIAddress{at(1), at(2)}},
			node: gpu.Node{GPUs: []gpu.GPU{{Address: at(1)}}, Unreadable: []gpu.Unreadable{{Index: 1, Err: failed}}},
			want: []string{"GPU at 0000:02:00.0: Unknown Error"},
		},
		"NVML returns no address and two are left": {
			bus:  bus{gpus: []gpu.PCIAddress{at(2), at(3)}},
			node: gpu.Node{Unreadable: []gpu.Unreadable{{Index: 1, Err: failed}}},
			want: []string{"GPU 1: Unknown Error"},
		},
		"the bus cannot be read": {
			bus: bus{err: failed}, node: gpu.Node{GPUs: []gpu.GPU{{Address: at(1)}}, Unreadable: []gpu.Unreadable{{Index: 1, Err: failed}}},
			want: []string{"GPU 1: Unknown Error"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(t.Context(), tc.bus, func(context.Context) (gpu.Node, error) { return tc.node, nil })
			require.NoError(t, err)
			var problems []string
			for _, u := range got.Unreadable {
				problems = append(problems, u.Problem().Error())
			}
			require.Same(t, "GPUs that cannot be read", tc.want, problems)
			if len(got.GPUs) != len(tc.node.GPUs) {
				t.Errorf("%d GPUs, want %d", len(got.GPUs), len(tc.node.GPUs))
			}
			for _, g := range got.GPUs {
				if g.PCIeRoot == "" {
					t.Errorf("GPU at %s has no place", g.Address)
				}
			}
		})
	}
}

func TestReadFailsWithoutADriver(t *testing.T) {
	_, err := Read(t.Context(), bus{gpus: []gpu.PCIAddress{at(1)}}, func(context.Context) (gpu.Node, error) {
		return gpu.Node{}, gpu.ErrNotReady
	})
	if !errors.Is(err, gpu.ErrNotReady) || strings.Contains(err.Error(), "PCI") {
		t.Errorf("error %v, want that of NVML", err)
	}
}
