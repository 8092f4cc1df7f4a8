// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestDeviceNodesAreFoundBelowTheDeviceRoot(t *testing.T) {
	m := simulate(t, load(t, "t4"))
	if err := m.missingNodes(); err != nil {
		t.Errorf("all nodes are there: %v", err)
	}
	m.devRoot = t.TempDir()
	for _, node := range []string{"nvidia0", "nvidia1", "nvidia3"} {
		path := filepath.Join(m.devRoot, "dev", node)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, nil, 0o644))
	}
	missing := filepath.Join(m.devRoot, "dev", "nvidia2")
	if err := m.missingNodes(); err == nil || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), "nvidia3") {
		t.Errorf("got %v, want %s alone", err, missing)
	}
}

func TestAMIGTableThatIsNotThereDoesNotPass(t *testing.T) {
	partitionable := gpu.GPU{MIG: gpu.MIG{Capable: true}}
	on := partitionable
	on.MIG.Enabled = true
	h100 := simulate(t, load(t, "dgx-h100")).node.GPUs[0]
	small := h100
	small.Multiprocessors = 10
	for name, c := range map[string]struct {
		gpu                 gpu.GPU
		problems, unchecked string
	}{
		"a GPU without MIG":              {gpu.GPU{}, "", "cannot be partitioned"},
		"no profiles while MIG is off":   {partitionable, "", "reports no profiles"},
		"no profiles while MIG is on":    {on, "reports no profiles", ""},
		"facts of a GPU without MIG":     {gpu.GPU{MIG: gpu.MIG{PendingEnabled: true}}, "has MIG facts", ""},
		"a table that makes sense":       {h100, "", ""},
		"a table that does not make any": {small, "SMs of a GPU with 10", ""},
	} {
		t.Run(name, func(t *testing.T) {
			problems, unchecked := migTables(c.gpu)
			all := strings.Join(problems, "; ")
			if (all == "") != (c.problems == "") || !strings.Contains(all, c.problems) {
				t.Errorf("problems %q, want %q", all, c.problems)
			}
			if (unchecked == "") != (c.unchecked == "") || !strings.Contains(unchecked, c.unchecked) {
				t.Errorf("unchecked because %q, want %q", unchecked, c.unchecked)
			}
		})
	}
}
