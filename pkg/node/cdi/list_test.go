// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
)

func TestSpecsOfOthersAreNotListed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nvidia.json", "management.json", "gpu.example.com-claim-uid-1.json"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600))
	}
	w, err := cdi.NewWriter(cdi.Options{Dir: dir, DriverName: "gpu.nvidia.com"})
	must(t, err)
	if got, err := w.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("listed %v, %v, want none", got, err)
	}
}
