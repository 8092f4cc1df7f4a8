package catalog_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/sysfs"
)

// sliceLimit is what one slice of a node with eight GPUs may take as JSON: a
// fleet's scheduler and API server pay for every byte on every node.
const sliceLimit = 10 << 10

// What the driver writes for each model of the simulator, from its NVML to the
// ResourceSlices. Regenerate with "make golden" and read the difference.
func TestGoldenModels(t *testing.T) {
	for _, model := range nvmlsim.ModelNames() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			m, err := nvmlsim.LoadModel(model)
			if err != nil {
				t.Fatal(err)
			}
			sim, err := nvmlsim.Create(t.TempDir(), m)
			if err != nil {
				t.Fatal(err)
			}
			node, err := nvml.New(sim.NVML()).Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			node, err = sysfs.Root(sim.Root()).Locate(node)
			if err != nil {
				t.Fatal(err)
			}
			if len(node.Unreadable) > 0 {
				t.Errorf("GPUs that do not answer: %v", node.Unreadable)
			}
			written, err := controller.Slices(t.Context(), "gpu.nvidia.com", "node-1", sharing().Resources(node, nil))
			if err != nil {
				t.Fatal(err)
			}
			for _, slice := range written {
				compact, err := json.Marshal(slice)
				if err != nil {
					t.Fatal(err)
				}
				if len(compact) > sliceLimit {
					t.Errorf("slice %s takes %d bytes of JSON, more than %d", slice.Name, len(compact), sliceLimit)
				}
			}
			var got bytes.Buffer
			if err := controller.WriteList(&got, written); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", model+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s is out of date; run make golden (-want +got):\n%s", golden, diff)
			}
		})
	}
}
