// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// Options are settings of the service.
type Options struct {
	// Log receives a line for each failure that no process gets as a reply.
	Log io.Writer
	// identify and root replace the kernel's facts of a process in tests: its PID and
	// the path of its root file system.
	identify func(*net.UnixConn) (pid int, err error)
	root     func(pid int) string
}

// service serves the processes of a node.
type service struct {
	sim     *nvmlsim.Sim
	options Options
	// peers are the goroutines that serve connections.
	peers sync.WaitGroup

	mu sync.Mutex
	// processes by PID.
	processes map[int]*process
}

// process is a process with at least one connection.
type process struct {
	name        string
	connections int
	// memory in bytes with contexts, and allocated without, by the UUID of a device.
	memory, allocated map[string]uint64
}

// Run serves the processes of a node until ctx ends, and calls ready once when they can
// connect. It returns [simerr.ErrInUse] if another process serves them. The socket stays
// where it is, because containers may name it in their mounts.
func Run(ctx context.Context, sim *nvmlsim.Sim, o Options, ready func()) error {
	if o.identify == nil {
		o.identify = peerPID
	}
	if o.root == nil {
		o.root = func(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid), "root") }
	}
	unregister, err := sim.RegisterDriver()
	if err != nil {
		return err
	}
	defer unregister()
	listener, err := listen(sim.DriverSocket())
	if err != nil {
		return fmt.Errorf("listen on %s: %w", sim.DriverSocket(), err)
	}
	s := &service{sim: sim, options: o, processes: map[int]*process{}}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	ready()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			s.log("accept a connection: %v", err)
			continue
		}
		s.peers.Go(func() { s.serve(ctx, conn) })
	}
	s.peers.Wait()
	return nil
}

// listen listens on a socket for every user, in the place of an earlier one. The path may
// be longer than the address of a socket.
func listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(folder.Fd())), filepath.Base(fresh))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o666), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// peerPID returns the PID of the connected process. It returns 0 if the process is in a
// PID namespace that this process does not see.
func peerPID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Pid), nil
}

// serve serves a connection until it or its process ends.
func (s *service) serve(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		cancel()
		stop()
		_ = conn.Close()
	}()
	calls := newCalls(conn)
	pid, err := s.options.identify(conn)
	if err == nil && pid <= 0 {
		err = fmt.Errorf("its PID namespace: %w", simerr.ErrNotFound)
	}
	var running *nvmlsim.RunningProcess
	if err == nil {
		running, err = nvmlsim.OpenProcess(pid)
	}
	if err != nil {
		calls.refuse(fail(errNotPermitted, "the simulated driver cannot identify the process: %v", err))
		return
	}
	defer running.Close()
	// A child may have inherited the connection and outlive the process.
	s.peers.Go(func() {
		_ = running.Wait(ctx)
		cancel()
	})
	s.join(pid)
	defer s.leave(pid)
	calls.serve(&session{service: s, pid: pid})
}

func (s *service) join(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[pid]
	if p == nil {
		name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")) // it may have ended
		p = &process{name: strings.TrimSpace(string(name)), memory: map[string]uint64{}, allocated: map[string]uint64{}}
		s.processes[pid] = p
	}
	p.connections++
}

// leave removes the memory of a process with its last connection.
func (s *service) leave(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[pid]
	if p.connections--; p.connections > 0 {
		return
	}
	delete(s.processes, pid)
	if err := s.sim.SetComputeProcess(nvmlsim.ComputeProcess{PID: pid}); err != nil {
		s.log("remove process %d: %v", pid, err)
	}
}

// change adds bytes to the memory of a process on a device, and returns the process'
// total. It first creates a context if the process has none there.
func (s *service) change(pid int, device nvmlsim.ComputeDevice, bytes int64) (uint64, error) {
	uuid := device.UUID
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[pid]
	set := func(to uint64) error {
		before, had := p.memory[uuid]
		p.memory[uuid] = to
		err := s.sim.SetComputeProcess(nvmlsim.ComputeProcess{PID: pid, Name: p.name, Memory: p.memory})
		if err != nil {
			if p.memory[uuid] = before; !had {
				delete(p.memory, uuid)
			}
		}
		return err
	}
	if _, ok := p.memory[uuid]; !ok {
		if err := set(device.ContextBytes(device.Multiprocessors)); err != nil {
			return 0, fmt.Errorf("no context: %w", err)
		}
	}
	if bytes < 0 {
		bytes = max(bytes, -int64(p.allocated[uuid]))
	}
	if bytes != 0 {
		if err := set(uint64(int64(p.memory[uuid]) + bytes)); err != nil {
			return 0, err
		}
	}
	p.allocated[uuid] = uint64(int64(p.allocated[uuid]) + bytes)
	return p.allocated[uuid], nil
}

func (s *service) log(format string, args ...any) {
	if s.options.Log != nil {
		_, _ = fmt.Fprintf(s.options.Log, format+"\n", args...)
	}
}
