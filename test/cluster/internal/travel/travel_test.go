// SPDX-License-Identifier: Apache-2.0

package travel

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAScriptNeedsNoLibraries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	if loader, libraries, err := Libraries(path); loader != "" || libraries != nil || err != nil {
		t.Errorf("got %q, %q, %v", loader, libraries, err)
	}
}
