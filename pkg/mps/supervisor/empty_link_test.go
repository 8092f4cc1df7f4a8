// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFolderThatIsALinkIsNotEmptied(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "node", "kept")
	must(t, os.Mkdir(filepath.Dir(kept), 0o755))
	must(t, os.WriteFile(kept, nil, 0o600))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink(filepath.Dir(kept), link))
	if err := emptyFolder(t.Context(), link); err == nil {
		t.Errorf("the link was followed, want %v", unix.ELOOP)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file of the node: %v, want it kept", err)
	}
}
