// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// families are the names that NVIDIA's gpu-feature-discovery has for the architectures
// of the models.
var families = map[string]string{
	"Volta": "volta", "Turing": "turing", "Ampere": "ampere", "Ada Lovelace": "ada-lovelace", "Hopper": "hopper", "Blackwell": "blackwell",
}

// The labels of NVIDIA's gpu-feature-discovery are computed from the text of the model
// here. A simulator that reads its model wrongly has other labels.
func TestLabelsOfGPUFeatureDiscoveryEqualTheModel(t *testing.T) {
	for _, name := range nvmlsim.ModelNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := filepath.Join(t.TempDir(), "sim")
			must(t, harness.CreateNode(t.Context(), cluster.Bin, machine, name))
			model, err := nvmlsim.LoadModel(name)
			must(t, err)
			want := nodeLabels(model)
			// The labels of one product, of several the last one: the program ranges over
			// them in any order.
			var products []map[string]string
			for kind := range model.Kinds {
				products = append(products, gpuLabels(model, kind))
			}
			got := discover(t, machine, "")
			var diff string
			for _, product := range products {
				if diff = cmp.Diff(merged(want, product), got); diff == "" {
					return
				}
			}
			t.Errorf("labels (-want +got):\n%s", diff)
		})
	}
}

// Labels of configurations of the device plugin, of which gpu-feature-discovery has a copy.
func TestLabelsOfGPUFeatureDiscoveryNameTheSharing(t *testing.T) {
	machine := filepath.Join(t.TempDir(), "sim")
	must(t, harness.CreateNode(t.Context(), cluster.Bin, machine, "dgx-h100"))
	for _, c := range []struct {
		name, config string
		want         map[string]string
	}{
		{"time slices", timeSlices, map[string]string{
			"gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing", "gpu.product": "NVIDIA-H100-80GB-HBM3",
		}},
		{"MPS", mpsReplicas, map[string]string{
			"gpu.replicas": "4", "gpu.sharing-strategy": "mps", "mps.capable": "true", "gpu.product": "NVIDIA-H100-80GB-HBM3",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantLabels(t, c.want, discover(t, machine, c.config))
		})
	}
	t.Run("MIG devices", func(t *testing.T) {
		cutMIG(t, machine, 0, "1g.10gb:0", "1g.10gb:1", "3g.40gb:4")
		wantLabels(t, map[string]string{
			"mig.strategy": "mixed", "gpu.count": "8",
			"mig-1g.10gb.count": "2", "mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "mig-1g.10gb.memory": "9984",
			"mig-1g.10gb.multiprocessors": "16", "mig-1g.10gb.slices.gi": "1", "mig-1g.10gb.slices.ci": "1",
			"mig-3g.40gb.count": "1", "mig-3g.40gb.memory": "40448", "mig-3g.40gb.multiprocessors": "60", "mig-3g.40gb.engines.copy": "3",
			"mig-3g.40gb.engines.decoder": "3", "mig-3g.40gb.slices.gi": "3",
		}, discover(t, machine, "", "--mig-strategy=mixed"))
	})
}

// wantLabels reports an error unless the labels have these values. Names are without their
// prefix.
func wantLabels(t *testing.T, want, got map[string]string) {
	t.Helper()
	found := map[string]string{}
	for name := range want {
		found[name] = got["nvidia.com/"+name]
	}
	require.Same(t, "labels", want, found)
}

// nodeLabels returns the labels of a node of the model that do not depend on a product.
func nodeLabels(m *nvmlsim.Model) map[string]string {
	driver, cuda := strings.Split(m.DriverVersion, "."), strings.Split(m.CUDAVersion, ".")
	capable := false
	for _, kind := range m.Kinds {
		capable = capable || kind.MIG != nil
	}
	labels := map[string]string{
		"cuda.driver.major": driver[0], "cuda.driver-version.major": driver[0],
		"cuda.driver.minor": driver[1], "cuda.driver-version.minor": driver[1],
		"cuda.driver.rev": driver[2], "cuda.driver-version.revision": driver[2],
		"cuda.driver-version.full": m.DriverVersion,
		"cuda.runtime.major":       cuda[0], "cuda.runtime-version.major": cuda[0],
		"cuda.runtime.minor": cuda[1], "cuda.runtime-version.minor": cuda[1],
		"cuda.runtime-version.full": m.CUDAVersion,
		"gpu.machine":               "Simulated-Node", "gpu.mode": "compute",
		"mig.capable": fmt.Sprint(capable), "mps.capable": "false", "vgpu.present": "false",
	}
	// A fabric of one machine has the UUID 0, and no clique.
	if f := m.Fabric; f != nil && strings.Trim(f.ClusterUUID, "0-") != "" {
		labels["gpu.clique"] = fmt.Sprintf("%s.%d", f.ClusterUUID, f.CliqueID)
	}
	return labels
}

// gpuLabels returns the labels of the GPUs of a kind.
func gpuLabels(m *nvmlsim.Model, name string) map[string]string {
	kind, count := m.Kinds[name], 0
	for _, gpu := range m.GPUs {
		if gpu.Kind == name {
			count++
		}
	}
	major, minor, _ := strings.Cut(kind.ComputeCapability, ".")
	return map[string]string{
		"gpu.count": fmt.Sprint(count), "gpu.replicas": "1", "gpu.sharing-strategy": "none",
		"gpu.product": strings.ReplaceAll(kind.Name, " ", "-"), "gpu.memory": fmt.Sprint(kind.MemoryMiB),
		"gpu.family": families[kind.Architecture], "gpu.compute.major": major, "gpu.compute.minor": minor,
	}
}

// merged returns labels with their prefix.
func merged(all ...map[string]string) map[string]string {
	labels := map[string]string{}
	for _, some := range all {
		for name, value := range some {
			labels["nvidia.com/"+name] = value
		}
	}
	return labels
}

// discover returns the labels that gpu-feature-discovery computes on a simulated node.
func discover(t *testing.T, machine, config string, args ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	machineType := filepath.Join(dir, "product_name")
	must(t, os.WriteFile(machineType, []byte("Simulated Node\n"), 0o600))
	args = append([]string{"--oneshot", "--no-timestamp", "--output-file=", "--machine-type-file=" + machineType}, args...)
	if config != "" {
		file := filepath.Join(dir, "config.yaml")
		must(t, os.WriteFile(file, []byte(config), 0o600))
		args = append(args, "--config-file="+file)
	}
	out, err := cluster.RunForeign(t.Context(), harness.Foreign{Program: "gpu-feature-discovery", Machine: machine, Env: libraryPath(t, machine), Args: args})
	must(t, err)
	labels := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			t.Fatalf("gpu-feature-discovery printed %q, want NAME=VALUE", line)
		}
		labels[name] = value
	}
	return labels
}

// libraryPath returns the variable by which programs of NVIDIA's find the library of a
// simulated node by its bare name.
func libraryPath(t *testing.T, machine string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(machine, "usr/lib/*/libnvidia-ml.so.1"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%s has the libraries %v, want one", machine, found)
	}
	return []string{"LD_LIBRARY_PATH=" + filepath.Dir(found[0])}
}
