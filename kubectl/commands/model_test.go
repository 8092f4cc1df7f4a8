// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The models are scans of the simulator's models: make generate rewrites them.
func TestModelsMatchTheSimulator(t *testing.T) {
	all, err := filepath.Glob(filepath.Join("..", "..", "simulator", "nvmlsim", "models", "*.yaml"))
	if err != nil || len(all) == 0 {
		t.Fatalf("models of the simulator: %d, %v", len(all), err)
	}
	if len(all) != len(modelNames()) {
		t.Errorf("models %v, and %d of the simulator", modelNames(), len(all))
	}
	for _, file := range all {
		name := filepath.Base(file[:len(file)-len(".yaml")])
		model, err := nvmlsim.LoadModel(name)
		require.NoError(t, err)
		sim, err := nvmlsim.Create(filepath.Join(t.TempDir(), "sim"), model)
		require.NoError(t, err)
		hardware, err := nvml.New(sim.NVML()).Snapshot(t.Context())
		require.NoError(t, err)
		hardware, err = sysfs.Root(sim.Root()).Locate(hardware)
		require.NoError(t, err)
		compact, err := json.Marshal(hardware)
		require.NoError(t, err)
		// A line for each GPU.
		text := strings.ReplaceAll(string(compact), `},{"Address":`, "},\n{\"Address\":") + "\n"
		golden := filepath.Join("models", name+".json")
		if os.Getenv("UPDATE_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(golden, []byte(text), 0o600))
		}
		want, err := os.ReadFile(golden) //nolint:gosec // a file of the tree
		require.NoError(t, err)
		require.Same(t, golden+" is not the scan of the model: run make generate", string(want), text)
	}
}
