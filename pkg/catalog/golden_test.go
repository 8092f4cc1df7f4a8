package catalog_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/sysfs"
)

// What a node with eight GPUs may take as JSON, with its GPUs alone, with time
// slices beside them, and with the common MIG profiles: a fleet's scheduler and
// API server pay for every byte on every node. Of what MIG takes, 3 kB say of a
// hundred devices that they can be shared, which is all that shares of them cost.
const (
	wholeLimit  = 10 << 10
	turnsLimit  = 16 << 10
	commonLimit = 47_000
	bothLimit   = 52_000
	noLimit     = 1 << 20
)

// What the driver writes for each model of the simulator, from its NVML to the
// ResourceSlices. Regenerate with "make golden" and read the difference.
func TestGoldenModels(t *testing.T) {
	for _, model := range nvmlsim.ModelNames() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			golden(t, model, sharing(), simulated(t, model), nil, wholeLimit)
		})
	}
}

// What a node comes to that has lost a GPU and a link and had one switched to
// MIG mode.
func TestGoldenFaults(t *testing.T) {
	node := simulated(t, "dgx-h100")
	node.GPUs[1].Links[0].Active = false
	node.GPUs[2].MIG.Enabled = true
	node.GPUs[3].Links = nil
	golden(t, "faults", sharing(), node, catalog.Unhealthy{
		node.GPUs[1].Address: "xid-74",
		node.GPUs[3].Address: "lost",
	}, wholeLimit)
}

func TestGoldenExclusive(t *testing.T) {
	c := sharing()
	c.Exclusive = true
	golden(t, "exclusive", c, simulated(t, "t4"), nil, wholeLimit)
}

// What is written where MIG is offered.
func TestGoldenMIG(t *testing.T) {
	for _, model := range []string{"dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "a30-bridge"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			golden(t, "mig-"+model, cutting(catalog.MIGProfiles{}), simulated(t, model), nil, commonLimit)
		})
	}
	t.Run("all profiles", func(t *testing.T) {
		t.Parallel()
		golden(t, "mig-all-dgx-h100", cutting(catalog.MIGProfiles{All: true}), simulated(t, "dgx-h100"), nil, noLimit)
	})
}

// What is written where GPUs are offered in turns too, with and without MIG.
func TestGoldenTimeSlices(t *testing.T) {
	for name, tc := range map[string]struct {
		catalog catalog.Catalog
		limit   int
	}{
		"timeslice-dgx-h100":     {slicing(sharing()), turnsLimit},
		"mig-timeslice-dgx-h100": {slicing(cutting(catalog.MIGProfiles{})), bothLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, name, tc.catalog, simulated(t, "dgx-h100"), nil, tc.limit)
		})
	}
}

// simulated looks at a new node of the model with the real adapters.
func simulated(t testing.TB, model string) gpu.Node {
	t.Helper()
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
		t.Fatalf("GPUs that do not answer: %v", node.Unreadable)
	}
	return node
}

// golden compares what is written for the node with testdata/<name>.json, and
// its size with the limit in bytes of compact JSON.
func golden(t *testing.T, name string, c catalog.Catalog, node gpu.Node, unhealthy catalog.Unhealthy, limit int) {
	t.Helper()
	// As the agent's flags have them by default.
	c.Shares.Smallest, c.Shares.ServerMemory = 1<<30, 64<<20
	written, err := controller.Slices(t.Context(), "gpu.nvidia.com", c.Pool, c.Resources(node, unhealthy, nil))
	if err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if len(compact) > limit {
		t.Errorf("the node takes %d bytes of JSON, more than %d", len(compact), limit)
	}
	var got bytes.Buffer
	if err := controller.WriteList(&got, written); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s is out of date; run make golden (-want +got):\n%s", file, diff)
	}
}
