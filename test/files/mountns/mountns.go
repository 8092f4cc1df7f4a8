// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package mountns keeps the mounts of tests off the machine.
//
// Where mounts are shared, as with systemd, an unmount of a copy reaches the original: a test that binds
// /dev recursively and then detaches the copy unmounts the machine's /dev/shm.
package mountns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// entered marks a process that is in its own mount namespace, and the processes that it starts.
const entered = "TEST_MOUNT_NAMESPACE"

// Enter starts the test program again in a mount namespace of its own.
// It is the first call of TestMain in a package whose tests mount. Without the right to mount it does
// nothing.
func Enter() {
	if os.Getenv(entered) != "" {
		return
	}
	if err := enter(); err != nil {
		fmt.Fprintln(os.Stderr, "a mount namespace for the tests:", err)
		os.Exit(1)
	}
}

func enter() error {
	// A program keeps the namespaces of the thread that executes it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); errors.Is(err, unix.EPERM) {
		return nil
	} else if err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return os.NewSyscallError("execve", syscall.Exec(program, os.Args, append(os.Environ(), entered+"=1")))
}
