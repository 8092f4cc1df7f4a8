// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mounts describes the mounts of a program: a mount namespace, a folder as /dev/shm, and a
// folder in which no links are followed. An empty value changes nothing. Any other needs
// CAP_SYS_ADMIN.
type mounts struct {
	namespace string
	shm       string
	noLinks   string
}

// do calls a function with the mounts. Programs that it starts inherit them.
func (m mounts) do(something func() error) error {
	if m == (mounts{}) {
		return something()
	}
	result := make(chan error, 1)
	go m.doOnThread(something, result)
	return <-result
}

// doOnThread calls the function on a thread with the mounts. The thread is never unlocked,
// so it ends with its goroutine.
func (m mounts) doOnThread(something func() error, result chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end, and its mounts are the process's own: hold it
		// while another thread calls the function.
		defer runtime.UnlockOSThread()
		other := make(chan error, 1)
		go m.doOnThread(something, other)
		result <- <-other
		return
	}
	if err := m.enter(); err != nil {
		result <- unprivileged(err)
		return
	}
	result <- something()
}

// unprivileged adds the remedy to an error if mounts are not permitted.
func unprivileged(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: a /dev/shm for each daemon takes CAP_SYS_ADMIN, and another mount namespace CAP_SYS_PTRACE as well: run the supervisor privileged, or share the host's /dev/shm (--host-shm): %w", gpu.ErrPermission, err)
	}
	return err
}

func (m mounts) enter() error {
	if m.namespace != "" {
		f, err := os.Open(m.namespace)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		// A thread that shares its root and working directory with others cannot enter
		// another namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter %s: %w", m.namespace, os.NewSyscallError("setns", err))
		}
	}
	if followsNoLinks(m.noLinks) {
		m.noLinks = ""
	}
	if m.shm == "" && m.noLinks == "" {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// Mounts made here must not appear in other namespaces. Unmounts in other
	// namespaces must apply here too, or no volume of the node can be detached.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("have mounts follow those of the node: %w", err)
	}
	if m.shm != "" {
		if err := unix.Mount(m.shm, hostShm, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.shm, hostShm, err)
		}
	}
	if m.noLinks == "" {
		return nil
	}
	if err := unix.Mount(m.noLinks, m.noLinks, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", m.noLinks, err)
	}
	if err := unix.Mount("", m.noLinks, "", unix.MS_BIND|unix.MS_REMOUNT|pipeFlags, ""); err != nil {
		return fmt.Errorf("have no links followed in %s: %w", m.noLinks, err)
	}
	return nil
}
