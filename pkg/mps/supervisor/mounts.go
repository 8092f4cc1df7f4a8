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

// mounts are the files that a program sees: those of a mount namespace, with a
// folder as /dev/shm and no links followed in another one. Empty values leave
// things as they are. Anything else takes CAP_SYS_ADMIN.
type mounts struct {
	namespace string
	shm       string
	noLinks   string
}

// do does something that sees these files, which a program that it starts sees
// too.
func (m mounts) do(something func() error) error {
	if m == (mounts{}) {
		return something()
	}
	result := make(chan error, 1)
	go m.doOnThread(something, result)
	return <-result
}

// doOnThread gives one thread these mounts, which a program that it starts
// inherits. The thread ends with its goroutine, as it is never unlocked.
func (m mounts) doOnThread(something func() error, result chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end, and its mounts count as the process's own:
		// keep hold of it while another one goes.
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

// unprivileged says what to do where mounts are not permitted.
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
		// A thread that shares its root and folder with others cannot move.
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
	// Nothing that is mounted here must be seen elsewhere. What is unmounted
	// elsewhere must go here too, or no volume of the node can be detached.
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
