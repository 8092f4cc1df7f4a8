// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// shmFlags are the flags of a container's own /dev/shm.
	shmFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// pipeFlags are the flags of a pipe folder, in which a container can create links.
	// Linux before 5.10 ignores the last one.
	pipeFlags = shmFlags | unix.MS_NOSYMFOLLOW

	// pipeSize and pipeInodes limit a pipe folder. The folder contains a few sockets,
	// a lock, the daemon's PID, and one more socket for each server.
	pipeSize   = 1 << 20
	pipeInodes = 1024
	// bytesPerInode limits the number of files of a shm: an empty file takes no page
	// of the tmpfs, but a kilobyte of the kernel's memory.
	bytesPerInode = 16 << 10
)

// fileSystem is a tmpfs on one of a daemon's folders. Containers that write to the folder
// fill the tmpfs and not the node's /run.
type fileSystem struct {
	path    string
	flags   uintptr
	options string
}

// fileSystems returns the file systems of a daemon; none if the supervisor mounts nothing
// for other containers.
func (o *Options) fileSystems(f folders) []fileSystem {
	if f.shm == "" || o.PlainShm {
		return nil
	}
	return []fileSystem{
		{path: f.pipe, flags: pipeFlags, options: fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", pipeSize, pipeInodes)},
		{path: f.shm, flags: shmFlags, options: fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", o.ShmSize, o.ShmSize/bytesPerInode)},
	}
}

// makeFolders creates the folders of a daemon with their file systems, and empties the
// pipe folder. A daemon that died leaves its socket there.
func (o *Options) makeFolders(ctx context.Context, f folders, d gpu.MPSDaemon) error {
	if err := f.make(); err != nil {
		return err
	}
	if err := o.mountAll(f); err != nil {
		return err
	}
	return o.inNamespace(func() error {
		if d.HasNamespaces() {
			return f.clearPipe(ctx, d.Namespaces)
		}
		return emptyFolder(ctx, f.pipe)
	})
}

// mountAll mounts the file systems of a daemon. It leaves a mounted one alone, and also a
// plain folder with files, which a supervisor with other options has created: containers
// use both. Where SELinux is on, containers may then use the folders.
func (o *Options) mountAll(f folders) error {
	return o.inNamespace(func() error {
		for _, each := range o.fileSystems(f) {
			if err := each.mount(o.kernel); err != nil {
				return err
			}
		}
		for _, path := range []string{f.pipe, f.shm} {
			if path != "" {
				o.kernel.labelFolder(path)
			}
		}
		return nil
	})
}

func (s fileSystem) mount(k kernel) error {
	mounted, err := isMountPoint(s.path)
	if err != nil || mounted {
		return err
	}
	empty, err := isEmpty(s.path)
	if err != nil {
		return err
	}
	if !empty {
		klog.Background().Info("Folder of an MPS daemon stays without a file system", "path", s.path)
		return nil
	}
	return k.mountTmpfs(s)
}

// unmountAll unmounts the file systems of a daemon, also if it was started with other
// options. Mounts in containers end with the containers.
func (o *Options) unmountAll(f folders) error {
	unmount := func() error {
		return cmp.Or(unmountFrom(f.pipe), unmountFrom(filepath.Join(f.dir, "shm")))
	}
	if err := o.inNamespace(unmount); err != nil {
		return err
	}
	// The supervisor's container has a copy of the mount if it started after it, which
	// would keep the folder from being removed.
	return unmount()
}

func unmountFrom(path string) error {
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

// inNamespace calls a function in the mount namespace of the daemons.
func (o *Options) inNamespace(something func() error) error {
	return mounts{namespace: o.MountNamespace}.do(something)
}

// isMountPoint reports whether a folder exists and is on another file system than its
// parent.
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

// isEmpty reports whether a folder is empty.
func isEmpty(path string) (bool, error) {
	dir, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return len(names) == 0, err
}

// followsNoLinks reports whether the folder is missing or on a file system that follows
// no links.
func followsNoLinks(path string) bool {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	return errors.Is(err, fs.ErrNotExist) || err == nil && s.Flags&stNoSymFollow != 0
}

// stNoSymFollow is ST_NOSYMFOLLOW of linux/statfs.h, which package unix lacks.
const stNoSymFollow = 0x2000
