// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Remove removes a folder in which nothing is. One that holds something, is a
// mount point, is a link to a folder or is not there stays as it is, which is no
// error.
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
