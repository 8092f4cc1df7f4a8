// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// A node has such a library until gpu-sim installs the simulator's.
func TestAProgramCanLoadALibraryWithoutFunctions(t *testing.T) {
	s, _ := newTestSim(t, "t4")
	library := dl.New(filepath.Join(s.Root(), libraryDirs[""], "libnvidia-ml.so.1"), dl.RTLD_NOW)
	noError(t, library.Open())
	defer library.Close() //nolint:errcheck // the test's process ends
	if err := library.Lookup("nvmlInit_v2"); err == nil {
		t.Error("the library has nvmlInit_v2")
	}
}
