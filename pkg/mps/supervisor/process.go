// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// process is a process that need not be a child of this one.
type process struct {
	pid   int
	fd    *os.File // a pidfd, because PIDs are reused
	conn  syscall.RawConn
	ended chan struct{}
}

// follow follows a process until it ends or is unfollowed. It calls reap, for a child,
// when the process ends. The error is [unix.ESRCH] if there is no such process.
func (o *Options) follow(pid int, reap func()) (*process, error) {
	fd, err := o.openProcess(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	// A flag of pidfd_open for this came with Linux 5.10 only.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p := &process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{})}
	if p.conn, err = p.fd.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.fd.Close())
	}
	go func() {
		err := p.conn.Read(pidfdEnded)
		if err != nil {
			return // unfollowed
		}
		if reap != nil {
			reap()
		}
		close(p.ended)
	}()
	return p, nil
}

// checkFollow returns an error if the kernel or the container runtime does not allow to
// follow processes.
func (o *Options) checkFollow() error {
	p, err := o.follow(os.Getpid(), nil)
	if err != nil {
		return fmt.Errorf("%w: processes cannot be followed: the supervisor needs Linux 5.3 or newer, and a container runtime that lets it call pidfd_open: %w", gpu.ErrNotSupported, err)
	}
	p.stopFollowing()
	return nil
}

// alive reports whether it is not known to have ended.
func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// matches reports whether a check of its PID holds for this process: after it has ended,
// another process can have the PID.
func (p *process) matches(check func(pid int) bool) bool {
	return check(p.pid) && !p.hasEnded()
}

// hasEnded reports whether the kernel considers it ended.
func (p *process) hasEnded() bool {
	var ended bool
	err := p.conn.Control(func(fd uintptr) { ended = pidfdEnded(fd) })
	return err != nil || ended
}

func pidfdEnded(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// stopFollowing stops following it. The process keeps running.
func (p *process) stopFollowing() {
	if p != nil {
		_ = p.fd.Close()
	}
}

// kill kills it and waits until it has ended.
func (p *process) kill(ctx context.Context) error {
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d: %w: it does not end although it was killed; it may hang in the GPU's driver", p.pid, gpu.ErrTimeout)
	}
}

func (p *process) signal(sig unix.Signal) error {
	var sent error
	err := p.conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if errors.Is(sent, unix.ESRCH) {
		return err // it has ended
	}
	return errors.Join(err, os.NewSyscallError("pidfd_send_signal", sent))
}
