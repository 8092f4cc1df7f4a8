// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBothDriversAreMeasured runs a short `make bench BENCH=-compare`. Its table in the documents must have
// the same figures.
func TestBothDriversAreMeasured(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "run", "./test/bench", "-bin", cluster.Bin, "-compare", "-kubeconfig", cluster.Kubeconfig, "-rounds", "4", "-bursts", "4", "-starts", "2", "-o", "json")
	command.Dir, command.Stderr = cluster.Root, os.Stderr
	out, err := command.Output()
	must(t, err)
	var rows []struct {
		Figure       string
		Ours, Theirs float64
	}
	must(t, json.Unmarshal(out, &rows))
	text, err := os.ReadFile(filepath.Join(cluster.Root, "docs/user/measured.md"))
	must(t, err)
	for _, row := range rows {
		if row.Ours <= 0 || (row.Theirs <= 0 && row.Figure != "calls of NVML for a claim") {
			t.Errorf("%s: ours %g, NVIDIA's %g", row.Figure, row.Ours, row.Theirs)
		}
		if !strings.Contains(string(text), "| "+row.Figure+" |") {
			t.Errorf("docs/user/measured.md has no row %q", row.Figure)
		}
	}
	if len(rows) < 12 {
		t.Errorf("only %d figures: %s", len(rows), out)
	}
}
