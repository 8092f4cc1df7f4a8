// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ShareMount makes a directory a mount that later mount namespaces share.
// A mount below it in one of them is in all of them. It is private first: a copy of a shared mount is in
// the same group, so that each mount below the directory would also be on the hidden original.
func ShareMount(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND, "")
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err == nil {
			err = unix.Mount("", dir, "", propagation, "")
		}
	}
	if err != nil {
		return fmt.Errorf("share mounts below %s: %w", dir, err)
	}
	return nil
}

// UnmountBelow unmounts everything at and below a directory, the last mounted
// first.
func UnmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("mounts below %s: %w", dir, err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		target := mounts[i].Mountpoint
		// Detached, because a process that is still dying may hold it. It may
		// have gone with the one above it, too.
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}
