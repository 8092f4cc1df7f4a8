// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/uuid"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// recordCommand runs "gpu-conformance record". It reads the GPUs of this machine, and
// writes them to out or to the file of --output. It changes no setting.
func recordCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	driverRoot := flags.String("driver-root", "/", "the folder with the NVIDIA driver")
	root := flags.String("root", "/", "the folder with sys of the machine; another for a simulated node")
	file := flags.String("output", "", "the file to write; empty for standard output")
	name := flags.String("name", "", "the name of the model; empty for one made from the GPUs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("record: unexpected argument %q", flags.Arg(0))
	}
	path, err := nvml.FindLibrary(*driverRoot)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	lib := gonvml.New(gonvml.WithLibraryPath(path))
	m := &machine{library: nvml.New(lib), lib: lib, root: *root, platform: map[string]string{"arm64": "aarch64"}[runtime.GOARCH]}
	data, err := m.record(ctx, *name)
	if err = errors.Join(err, m.library.Close()); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if *file == "" {
		_, err = out.Write(data)
	} else {
		err = os.WriteFile(*file, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("record: write the model: %w", err)
	}
	return nil
}

// record reads the machine, and returns it as the YAML of a valid model. It fails if a
// GPU is unreadable, because the model would lack that GPU. The UUID of a fabric is made
// from the model's name.
func (m *machine) record(ctx context.Context, name string) ([]byte, error) {
	var err error
	if m.node, err = m.snapshot(ctx); err != nil {
		return nil, fmt.Errorf("read the GPUs: %w", err)
	}
	if len(m.node.Unreadable) > 0 {
		first := m.node.Unreadable[0]
		return nil, fmt.Errorf("read GPU %d: %w", first.Index, first.Err)
	}
	if m.locateErr != nil {
		return nil, fmt.Errorf("locate the GPUs: %w", m.locateErr)
	}
	model, err := m.capture(cmp.Or(name, m.modelName()), m.node)
	if err != nil {
		return nil, err
	}
	if f := model.Fabric; f != nil && f.ClusterUUID != uuid.Nil.String() {
		f.ClusterUUID = uuid.NewSHA1(uuid.Nil, []byte(model.Name)).String()
	}
	if err := model.Validate(); err != nil {
		return nil, fmt.Errorf("model %s: %w", model.Name, err)
	}
	return yaml.Marshal(model)
}

// A node that is created from a recording has the same recording, byte for byte.
func TestRecordingReproducesItself(t *testing.T) {
	models := map[string]*nvmlsim.Model{"with a recovery action and refusals": refusing(t)}
	for _, name := range nvmlsim.ModelNames() {
		models[name] = load(t, name)
	}
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			source := simulate(t, model)
			first, err := source.record(t.Context(), "")
			must(t, err)
			for _, g := range source.node.GPUs {
				if bytes.Contains(first, []byte(g.UUID)) {
					t.Errorf("the recording has the UUID %s", g.UUID)
				}
			}
			if f := model.Fabric; f != nil && f.ClusterUUID != uuid.Nil.String() && bytes.Contains(first, []byte(f.ClusterUUID)) {
				t.Errorf("the recording has the fabric's UUID %s", f.ClusterUUID)
			}
			file := filepath.Join(t.TempDir(), "machine.yaml")
			must(t, os.WriteFile(file, first, 0o644))
			second, err := simulate(t, load(t, file)).record(t.Context(), "")
			must(t, err)
			if !bytes.Equal(first, second) {
				t.Errorf("the recording of a recording differs\nfirst:\n%s\nsecond:\n%s", first, second)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"an argument":     {"machine.yaml"},
		"an unknown flag": {"-reset"},
		"no driver":       {"-driver-root", t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := recordCommand(t.Context(), args, &out); err == nil || out.Len() > 0 {
				t.Errorf("error %v, output %q; want an error and no output", err, &out)
			}
		})
	}
}
