// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

func TestBuiltInModelsLoad(t *testing.T) {
	want := []string{"1-h200", "a30-bridge", "dgx-a100", "dgx-b200", "dgx-h100", "dgx-h100-r615", "dgx1-v100", "gb200", "hgx-h200", "l40s", "mixed-a30-l40s", "rtx-pro-6000", "t4"}
	if diff := cmp.Diff(want, ModelNames()); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	for _, name := range ModelNames() {
		t.Run(name, func(t *testing.T) {
			m, err := LoadModel(name)
			noError(t, err)
			if m.Name != name {
				t.Errorf("the model calls itself %q", m.Name)
			}
			data, err := yaml.Marshal(m)
			noError(t, err)
			again, err := parseModel(name, data)
			if err != nil {
				t.Fatalf("cannot read the written model: %v", err)
			}
			if diff := cmp.Diff(m, again); diff != "" {
				t.Errorf("written and read again (-want +got):\n%s", diff)
			}
		})
	}
}

// On Ampere go-nvml's tables match the hardware. For later GPUs their engine counts,
// multiprocessors and placements differ from the output of nvidia-smi, so the test
// compares the other columns only.
func TestMIGTablesAgreeWithGoNVML(t *testing.T) {
	for _, tc := range []struct {
		model string
		mock  gpus.Config
		exact bool
	}{
		{"a30-bridge", gpus.A30_PCIE_24GB, true},
		{"dgx-a100", gpus.A100_SXM4_80GB, true},
		{"dgx-h100", gpus.H100_SXM5_80GB, false},
		{"hgx-h200", gpus.H200_SXM5_141GB, false},
		{"dgx-b200", gpus.B200_SXM5_180GB, false},
	} {
		t.Run(tc.model, func(t *testing.T) {
			_, lib := newTestSim(t, tc.model)
			d := gpuHandle(t, lib, 0)
			for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
				want, ok := tc.mock.MIGProfiles.GpuInstanceProfiles[number]
				got, ret := d.GetGpuInstanceProfileInfo(number)
				if !ok {
					if ret != nvml.ERROR_NOT_SUPPORTED {
						t.Errorf("profile %d: %v, want ERROR_NOT_SUPPORTED", number, ret)
					}
					continue
				}
				if ret != nvml.SUCCESS {
					t.Errorf("profile %d: %v", number, ret)
					continue
				}
				placements := must[[]nvml.GpuInstancePlacement](t, "placements")(d.GetGpuInstancePossiblePlacements(&got))
				if want.InstanceCount != got.InstanceCount || want.SliceCount != got.SliceCount {
					t.Errorf("profile %d: %d instances of %d slices, want %d of %d", number, got.InstanceCount, got.SliceCount, want.InstanceCount, want.SliceCount)
				}
				if !tc.exact {
					continue
				}
				// The mock returns the profile's number as its ID.
				got.Id = want.Id
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("profile %d (-want +got):\n%s", number, diff)
				}
				if diff := cmp.Diff(tc.mock.MIGProfiles.GpuInstancePlacements[number], placements); diff != "" {
					t.Errorf("placements of profile %d (-want +got):\n%s", number, diff)
				}
			}
		})
	}
}

// small is a valid model of one GPU.
const small = `
name: small
driverVersion: 570.124.06
cudaVersion: "12.8"
numaNodes:
- {cpus: 0-3}
kinds:
  g:
    name: A GPU
    brand: Nvidia
    architecture: Hopper
    computeCapability: "9.0"
    memoryMiB: 1024
    multiprocessors: 14
    cores: 1792
    pciDevice: "0x233010de"
    mig:
      memorySlices: 8
      computeSlices: 7
      profiles:
      - {name: 1g.10gb, profile: 0, id: 19, memoryMiB: 100, multiprocessors: 2, max: 7, size: 1, starts: [0, 1]}
gpus:
- {kind: g, address: "0000:1b:00.0", numaNode: 0}
`

func TestErrorsOfBadModelsNameTheFieldAndTheReason(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		want           []string
	}{
		{"unknown field", "brand: Nvidia", "brant: Nvidia", []string{`unknown field "kinds.g.brant"`}},
		{"doubled field", "name: small", "name: small\nname: twice", []string{`"name" already set`}},
		{"not YAML", "name: small", "name: [", []string{"yaml:"}},
		{"wrong type", "memoryMiB: 1024", "memoryMiB: lots", []string{"memoryMiB"}},
		{"negative memory", "memoryMiB: 1024", "memoryMiB: -1", []string{"memoryMiB"}},
		{"no memory", "memoryMiB: 1024", "memoryMiB: 0", []string{"kinds.g.memoryMiB: invalid"}},
		{"version as a number", `cudaVersion: "12.8"`, `cudaVersion: "12"`, []string{"cudaVersion: invalid", "in quotes"}},
		{"unknown brand", "brand: Nvidia", "brand: AMD", []string{"kinds.g.brand: invalid", "Tesla"}},
		{"unknown architecture", "architecture: Hopper", "architecture: Bopper", []string{"kinds.g.architecture"}},
		{"unknown kind", "kind: g", "kind: h", []string{`gpus[0].kind: invalid: "h" is none of g`}},
		{"bad address", "0000:1b:00.0", "1b:00", []string{"gpus[0].address"}},
		{"NUMA node that is not there", "numaNode: 0", "numaNode: 4", []string{"gpus[0].numaNode: invalid: 4 is none of the 1 nodes"}},
		{"CPU list", "cpus: 0-3", "cpus: 3-0", []string{"numaNodes[0].cpus"}},
		{"too many CPUs", "cpus: 0-3", "cpus: 0-9999999", []string{"numaNodes[0].cpus"}},
		{"same address twice", "gpus:", "gpus:\n- {kind: g, address: \"0000:1b:00.0\"}", []string{"gpus[1].address: invalid: address 0000:1b:00.0 is already used by gpus[0].address"}},
		{"profile name", "name: 1g.10gb,", "name: 1g,", []string{"kinds.g.mig.profiles[0].name"}},
		{"profile number of another size", "profile: 0", "profile: 4", []string{"kinds.g.mig.profiles[0].profile: invalid: NVML's profile 4 has 7 slices"}},
		{"placement beyond the GPU", "starts: [0, 1]", "starts: [0, 8]", []string{"kinds.g.mig.profiles[0].starts[1]"}},
		{"profile larger than the GPU", "memoryMiB: 100", "memoryMiB: 9000", []string{"kinds.g.mig.profiles[0].memoryMiB"}},
		{"link to a GPU without address", "numaNode: 0}", "links: [{numbers: 0-3, remote: GPU}]}", []string{"gpus[0].links[0].address"}},
		{"link to itself", "numaNode: 0}", `links: [{numbers: 0-3, remote: GPU, address: "0000:1b:00.0"}]}`, []string{"gpus[0].links", "itself"}},
		{"gap in the links", "numaNode: 0}", `links: [{numbers: 1-3, remote: Switch}]}`, []string{"gpus[0].links", "link 0 is missing"}},
		{"too many links", "numaNode: 0}", `links: [{numbers: 0-99, remote: Switch}]}`, []string{"gpus[0].links[0].numbers"}},
		{"NVLink version", "brand: Nvidia", "brand: Nvidia\n    nvlinkVersion: \"7.0\"", []string{"kinds.g.nvlinkVersion", "4.0"}},
		{"a NIC at a GPU's address", "gpus:", "nics:\n- {address: \"0000:1b:00.0\"}\ngpus:", []string{"nics[0].address: invalid: address 0000:1b:00.0 is already used by gpus[0].address"}},
		{"a NIC's place", "gpus:", "nics:\n- {address: \"0000:18:00.0\", numaNode: 1, pcieRoot: x, bridges: [z]}\ngpus:", []string{"nics[0].numaNode", "nics[0].pcieRoot", "nics[0].bridges[0]"}},
		{"an RDMA device twice", "gpus:", "nics:\n- {address: \"0000:18:00.0\", rdma: mlx5_0}\n- {address: \"0000:19:00.0\", rdma: mlx5_0}\ngpus:", []string{"nics[1].rdma: invalid: rdma mlx5_0 is already used by nics[0].rdma"}},
		{"a path as an interface", "gpus:", "nics:\n- {address: \"0000:18:00.0\", interface: ../eth0}\ngpus:", []string{"nics[0].interface"}},
		{"a virtual function of nothing", "gpus:", "nics:\n- {address: \"0000:18:00.1\", virtualOf: \"0000:18:00.0\"}\ngpus:", []string{"nics[0].virtualOf"}},
		{"MIG mode without MIG", "gpus:", "  plain: {name: x, brand: Nvidia, architecture: Ada Lovelace, computeCapability: \"8.9\", memoryMiB: 1, multiprocessors: 1, cores: 1, pciDevice: \"0x233010de\"}\ngpus:\n- {kind: plain, address: \"0000:01:00.0\", migMode: true}", []string{"gpus[0].migMode"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(small, tc.old) {
				t.Fatalf("the model has no %q", tc.old)
			}
			file := filepath.Join(t.TempDir(), "mine.yaml")
			noError(t, os.WriteFile(file, []byte(strings.Replace(small, tc.old, tc.new, 1)), 0o644))
			_, err := LoadModel(file)
			if !errors.Is(err, simerr.ErrInvalid) {
				t.Fatalf("got %v, want an ErrInvalid", err)
			}
			for _, part := range append(tc.want, file) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
		})
	}
}

func TestUnknownModelNamesTheKnownOnes(t *testing.T) {
	_, err := LoadModel("dgx-h1000")
	if !errors.Is(err, simerr.ErrNotFound) || !strings.Contains(err.Error(), "dgx-h100,") {
		t.Errorf("got %v", err)
	}
	if _, err := LoadModel(filepath.Join(t.TempDir(), "gone.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}
