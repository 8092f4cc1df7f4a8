// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// reach returns [fs.ErrPermission] if a user's processes cannot open the files in a
// folder. A server opens the log and the socket of the pipe directory as its client's
// user, and ends if it may not. Groups are ignored, because the groups of a server are
// not documented.
func reach(uid int, folder string) error {
	if uid == 0 {
		return nil
	}
	path, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		search := fs.FileMode(0o001)
		if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) == uid {
			search = 0o100
		}
		if info.Mode().Perm()&search == 0 {
			return fmt.Errorf("user %d cannot open files in %s: %w: %s has mode %v", uid, folder, fs.ErrPermission, path, info.Mode())
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}
