package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mounts are the files that a program sees: those of a mount namespace, with a
// folder as /dev/shm. Empty values leave things as they are. Anything else
// takes CAP_SYS_ADMIN.
type mounts struct {
	namespace string
	shm       string
}

// start starts a program that sees these files.
func (m mounts) start(cmd *exec.Cmd) error {
	if m == (mounts{}) {
		return cmd.Start()
	}
	result := make(chan error, 1)
	go m.startOnThread(cmd, result)
	return <-result
}

// startOnThread gives one thread these mounts, and the program inherits them.
// The thread ends with its goroutine, as it is never unlocked.
func (m mounts) startOnThread(cmd *exec.Cmd, result chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end, and its mounts count as the process's own:
		// keep hold of it while another one goes.
		defer runtime.UnlockOSThread()
		other := make(chan error, 1)
		go m.startOnThread(cmd, other)
		result <- <-other
		return
	}
	if err := m.enter(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: a mount namespace of its own takes CAP_SYS_ADMIN, and another's CAP_SYS_PTRACE as well: run the supervisor privileged, or share the host's /dev/shm (--host-shm): %w", gpu.ErrPermission, err)
		}
		result <- err
		return
	}
	result <- cmd.Start()
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
	if m.shm == "" {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// Nothing that is mounted here must be seen elsewhere, and what is unmounted
	// elsewhere, such as the files of a container that ends, must stay here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(m.shm, hostShm, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.shm, hostShm, err)
	}
	return nil
}
