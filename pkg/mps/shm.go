package mps

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shmFlags are what a container's own /dev/shm has; among the pipes there are no
// programs and devices either.
const shmFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountShm gives a daemon's shm folder a file system of its own, so that its
// clients can fill that and not the host's. One that is there stays: containers
// have it.
func (o *Options) mountShm(f folders) error {
	if f.shm == "" || o.PlainShm {
		return nil
	}
	return mounts{namespace: o.MountNamespace}.do(func() error {
		mounted, err := isMountPoint(f.shm)
		if err != nil || mounted {
			return err
		}
		if err := unix.Mount("mps-shm", f.shm, "tmpfs", shmFlags, fmt.Sprintf("mode=1777,size=%d", o.ShmSize)); err != nil {
			return unprivileged(fmt.Errorf("mount a tmpfs on %s: %w", f.shm, err))
		}
		return nil
	})
}

// unmountShm takes it away, also where the options have changed since it was
// mounted. What containers have of it goes with them.
func (o *Options) unmountShm(f folders) error {
	path := filepath.Join(f.dir, "shm")
	unmount := func() error {
		for {
			mounted, err := isMountPoint(path)
			if err != nil || !mounted {
				return err
			}
			if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return unprivileged(fmt.Errorf("unmount %s: %w", path, err))
			}
		}
	}
	if err := (mounts{namespace: o.MountNamespace}).do(unmount); err != nil {
		return err
	}
	// A container that started since may have a copy, which is in the way of
	// removing the folder.
	return unmount()
}

// isMountPoint reports whether a folder, if it is there, is on another file
// system than the one that it is in.
func isMountPoint(path string) (bool, error) {
	var own, parent unix.Stat_t
	err := cmp.Or(unix.Lstat(path, &own), unix.Lstat(filepath.Dir(path), &parent))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return own.Dev != parent.Dev, nil
}
