// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var (
	hardware    = flag.String("hardware", "", `the hardware to check: "nvml" for the GPUs of this machine, or "sim:<model>"; empty for every built-in model`)
	driverRoot  = flag.String("driver-root", "/", "with -hardware=nvml, where the NVIDIA driver is installed")
	devRoot     = flag.String("dev-root", "", "with -hardware=nvml, the folder that holds dev/nvidia*; empty for the driver root")
	captureFile = flag.String("capture", "", "write the node to this file, as a model of the simulator in YAML")
)

// TestHardware runs every check against the hardware asked for.
func TestHardware(t *testing.T) {
	switch kind, model, _ := strings.Cut(*hardware, ":"); kind {
	case "nvml":
		checkAll(t, thisMachine(t))
	case "sim":
		checkAll(t, simulate(t, load(t, model)))
	case "":
		if *captureFile != "" {
			t.Fatal("-capture needs one machine to describe: say which with -hardware")
		}
		for _, name := range nvmlsim.ModelNames() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkAll(t, simulate(t, load(t, name)))
			})
		}
	default:
		t.Fatalf("-hardware=%s: want nvml or sim:<model>", *hardware)
	}
}

func checkAll(t *testing.T, m *machine) {
	t.Logf("the node:\n%s", Describe(m.node))
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.check(t, m) })
	}
}

// machine is a node under test.
type machine struct {
	library *nvml.Library
	// lib reads facts that only the checks need.
	lib gonvml.Interface
	// root is the directory with the machine's sys and proc, devRoot the one with
	// the driver's dev.
	root    string
	devRoot string
	// platform as a model spells it.
	platform string
	// driverRoot has the driver's programs, client is the kind of client that
	// their MPS has.
	driverRoot gpu.DriverRoot
	client     string
	// state is the folder of simulated hardware; empty for real hardware.
	state string

	node gpu.Node
	// locateErr says which GPUs the kernel does not place.
	locateErr error
}

// patience bounds how long a GPU may take to answer. Without persistence mode
// the first call starts every GPU, which takes seconds each.
const patience = 2 * time.Minute

func (m *machine) snapshot(ctx context.Context) (gpu.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node, err := m.library.SnapshotOfAll(ctx)
	if err != nil {
		return gpu.Node{}, err
	}
	node, m.locateErr = sysfs.Root(m.root).Locate(node)
	return node, nil
}

func (m *machine) look(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := m.library.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	m.node, err = m.snapshot(t.Context())
	must(t, err)
}

// thisMachine is the one that the suite runs on.
func thisMachine(t *testing.T) *machine {
	t.Helper()
	platforms := map[string]string{"amd64": "", "arm64": "aarch64"}
	path, err := nvml.FindLibrary(*driverRoot)
	must(t, err)
	// go-nvml keeps state per process, which a second instance would overwrite.
	lib := gonvml.New(gonvml.WithLibraryPath(path))
	m := &machine{library: nvml.New(lib), lib: lib, root: "/", platform: platforms[runtime.GOARCH],
		devRoot: cmp.Or(*devRoot, *driverRoot), driverRoot: gpu.DriverRoot(*driverRoot), client: clientOfCUDA}
	m.look(t)
	return m
}

// simulate makes a machine out of a model.
func simulate(t *testing.T, model *nvmlsim.Model) *machine {
	t.Helper()
	state := t.TempDir()
	sim, err := nvmlsim.Create(state, model)
	if err == nil && gpuSim != "" {
		err = sim.InstallPrograms(gpuSim)
	}
	must(t, err)
	lib := sim.NVML()
	m := &machine{library: nvml.New(lib), lib: lib, root: sim.Root(), platform: model.Platform,
		devRoot: sim.Root(), driverRoot: gpu.DriverRoot(sim.Root()), client: clientOfStandIn, state: state}
	m.look(t)
	return m
}

var must = require.NoError

func load(t *testing.T, name string) *nvmlsim.Model {
	t.Helper()
	model, err := nvmlsim.LoadModel(name)
	must(t, err)
	return model
}

// modelName names a captured model after its GPUs: "4-a30".
func (m *machine) modelName() string {
	if len(m.node.GPUs) == 0 {
		return "no-gpu"
	}
	return fmt.Sprintf("%d-%s", len(m.node.GPUs), slug(m.node.GPUs[0].ProductName))
}

func writeModel(file string, model *nvmlsim.Model) error {
	data, err := yaml.Marshal(model)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
