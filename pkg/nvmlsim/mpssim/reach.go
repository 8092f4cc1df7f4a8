// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// reach is [fs.ErrPermission] where a process of a user does not get to what is in
// a folder, as its server must: it opens the log and the socket of the pipe
// directory under its client's user, and ends where it may not. Groups do not
// count: which ones a server has is not documented.
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
			return fmt.Errorf("user %d cannot open what is in %s: %w: %s has mode %v", uid, folder, fs.ErrPermission, path, info.Mode())
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}
