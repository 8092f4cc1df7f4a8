// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Before a folder that was opened is locked, its owner may remove it. Another
// process may then create it again.
func TestAFolderThatIsRemovedBeforeItIsLockedIsNotTaken(t *testing.T) {
	for name, again := range map[string]bool{"removed": false, "removed and made anew": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shared")
			l, err := open(path, 0o750)
			must(t, err)
			must(t, os.Remove(path))
			if again {
				must(t, os.Mkdir(path, 0o750))
			}
			for _, how := range []int{unix.LOCK_SH, unix.LOCK_EX} {
				require.Error(t, fmt.Sprintf("lock %d", how), l.lock(how), errReplaced)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

var must = require.NoError
