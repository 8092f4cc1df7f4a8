package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// process is one that may or may not be a child of this one.
type process struct {
	pid   int
	fd    *os.File // names the process, whoever gets its number later
	conn  syscall.RawConn
	ended chan struct{}
}

// followProcess follows a process until it ends or is let go. reap, for a child,
// is called then.
func followProcess(pid int, reap func()) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	p := &process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{})}
	if p.conn, err = p.fd.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.fd.Close())
	}
	go func() {
		err := p.conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return err == nil && n > 0
		})
		if err != nil {
			return // let go
		}
		if reap != nil {
			reap()
		}
		close(p.ended)
	}()
	return p, nil
}

// alive reports whether it has not ended, as far as is known.
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

// letGo stops following it. It lives on.
func (p *process) letGo() {
	if p != nil {
		_ = p.fd.Close()
	}
}

// kill ends it at once and waits until it has.
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

// logVariable marks the processes of a daemon: servers inherit it from the
// daemon, and clients have no such path.
const logVariable = "CUDA_MPS_LOG_DIRECTORY="

// devicesVariable says which devices a daemon's clients see.
const devicesVariable = "CUDA_VISIBLE_DEVICES="

// findProcesses finds a daemon and its servers by the log directory in their
// environment. The caller lets go of them.
func findProcesses(logDir string) ([]*process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []*process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !sameProcesses(pid) || !hasLogDir(pid, logDir) {
			continue
		}
		p, err := followProcess(pid, nil)
		if err != nil {
			continue // it has ended since
		}
		// Looked at again, now that the number cannot go to another process.
		if !sameProcesses(pid) || !hasLogDir(pid, logDir) {
			p.letGo()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// sameProcesses reports whether a process sees the same processes as this one,
// as a daemon and its servers do. A container, whose processes can have any
// environment, sees its own only.
func sameProcesses(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return false
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && its == own
}

func hasLogDir(pid int, dir string) bool { return hasVariable(pid, logVariable+dir) }

// hasVariable reports whether a process was started with "NAME=value".
func hasVariable(pid int, want string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false // ended, or another user's
	}
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if string(variable) == want {
			return true
		}
	}
	return false
}

// findDaemon finds the control daemon of a log directory, which leads the
// session that it was started in; nil if there is none.
func findDaemon(logDir string) (*process, error) {
	found, err := findProcesses(logDir)
	if err != nil {
		return nil, err
	}
	var daemon *process
	for _, p := range found {
		if session, err := unix.Getsid(p.pid); err == nil && session == p.pid && daemon == nil {
			daemon = p
			continue
		}
		p.letGo()
	}
	return daemon, nil
}

// killProcesses ends a daemon and its servers at once, wherever they come from.
func killProcesses(ctx context.Context, logDir string) error {
	found, err := findProcesses(logDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range found {
		errs = append(errs, p.kill(ctx))
		p.letGo()
	}
	return errors.Join(errs...)
}
