// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Remove removes an empty folder. It returns nil and does nothing if the folder is
// not empty, is a mount point, is a link or does not exist.
func Remove(path string) error {
	err := unix.Rmdir(path)
	for _, stays := range []error{unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY, unix.ENOTDIR, unix.ENOENT} {
		if errors.Is(err, stays) {
			return nil
		}
	}
	if err != nil {
		return &fs.PathError{Op: "remove folder", Path: path, Err: err}
	}
	return nil
}
