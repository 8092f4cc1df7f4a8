package host

import (
	"fmt"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// UnmountBelow unmounts everything at and below a directory, the last mounted
// first.
func UnmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("mounts below %s: %w", dir, err)
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		// Detached, because a process that is still dying may hold it.
		target := mounts[i].Mountpoint
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT { //nolint:errorlint // plain errno
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}
