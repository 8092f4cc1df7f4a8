// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The states of a server, as get_server_status prints them. The stand-in is
// never seen INITIALIZING.
const (
	active = "ACTIVE"
	fault  = "FAULT"
)

// serverBytes is the memory of a server on each device. It was measured on an H200 with release
// 580 and 1 to 47 clients. On A100s with release 615 an operator measured 36 MiB.
const serverBytes = 66 << 20

// volta is the first compute capability whose clients have limits, and memory of their own.
const volta = 7

// server is an MPS server. Its process does not compute. It only provides a PID that
// other processes can see and kill.
type server struct {
	// name is empty for the server of a daemon with protocol 2.
	name     string
	pid, uid int
	status   string
	limits   Limits
	devices  []nvmlsim.ComputeDevice
	// stdin holds the process: it ends with the daemon, however that ends.
	stdin    io.WriteCloser
	stopping bool
	// shm is the server's file in /dev/shm, and token is the content of the file.
	shm, token string
	// clients in the order of their connection, also the ones that have ended.
	clients []*client
	// allowed are the devices that a named server was restricted to, in the words of
	// the command. namespaces are the server's namespaces, the default one first.
	allowed    []string
	namespaces []*namespace
}

// startServer starts the server for a user. The caller holds the lock.
func (d *Daemon) startServer(uid int) error {
	if err := reach(uid, d.options.PipeDirectory); err != nil {
		return err
	}
	s := &server{uid: uid, limits: d.defaults.clone()}
	ended, err := d.launch(s, d.uuids())
	if err != nil {
		return err
	}
	d.server = s
	d.follow(s, ended)
	return nil
}

// launch starts the process of a server of the devices. The returned function waits for
// its end. The caller holds the lock.
func (d *Daemon) launch(s *server, uuids []string) (ended func(), err error) {
	if d.closing {
		return nil, errors.New("the control daemon quits")
	}
	devices, err := d.sim.ComputeDevices(uuids...)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(devices, func(device nvmlsim.ComputeDevice) bool { return device.ComputeCapability.Major < volta }) {
		return nil, errors.New("the simulator has no MPS of GPUs before Volta")
	}
	cmd, stdin, err := startProcess(d.options.Server)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", nvmlsim.MPSServerName, err)
	}
	s.pid, s.status, s.devices, s.stdin, s.token = cmd.Process.Pid, active, devices, stdin, newToken()
	s.shm = "cuda.mps." + strconv.Itoa(s.pid)
	if err = d.share(s); err == nil {
		err = d.hold(s)
	}
	if err != nil {
		s.stop()
		// Ends with its standard input; its status says nothing.
		_ = cmd.Wait()
		d.forget(s)
		return nil, err
	}
	return func() { _ = cmd.Wait() }, nil
}

// follow notices the end of a server that has started.
func (d *Daemon) follow(s *server, ended func()) {
	d.logs.control(d.pid, "Starting new server %d for user %d", s.pid, s.uid)
	d.logs.control(d.pid, "NEW SERVER %d: Ready", s.pid)
	d.peers.Go(func() {
		ended()
		d.serverEnded(s)
	})
	d.save()
}

// RunServerProcess is the process of a server until its standard input ends. The daemon
// reads a line when the kernel reports the process under the name of a server. The input is the
// path of the server's file, which then goes, also if the daemon was killed.
func RunServerProcess(stdin io.Reader, stdout io.Writer) error {
	// Without a /proc to write to, the process keeps the name of its file. The kernel's
	// 15 characters of it are the same for the control daemon's file.
	_ = os.WriteFile("/proc/self/comm", []byte(nvmlsim.MPSServerName), 0o644)
	if _, err := fmt.Fprintln(stdout); err != nil {
		return err
	}
	path, err := io.ReadAll(stdin)
	_ = os.Remove(strings.TrimSpace(string(path)))
	return err
}

// startProcess starts the process of a server with the program, or with a shell. The
// process ends with its standard input, as [RunServerProcess] does. When startProcess returns, the kernel reports the
// process under the name of a real server.
func startProcess(program string) (*exec.Cmd, io.WriteCloser, error) {
	const script = `echo "$0" >/proc/$$/comm; echo; read path; read _; rm -f "$path"`
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", script, nvmlsim.MPSServerName)
	if program != "" {
		cmd = exec.CommandContext(context.Background(), program)
		cmd.Args[0] = nvmlsim.MPSServerName
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		return nil, nil, errors.Join(err, stdin.Close(), cmd.Wait())
	}
	return cmd, stdin, nil
}

// share writes the server's file, for clients of every user to read.
func (d *Daemon) share(s *server) error {
	path := filepath.Join(d.options.Shm, s.shm)
	if err := os.WriteFile(path, []byte(s.token), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.stdin, path)
	return errors.Join(err, os.Chmod(path, 0o644))
}

// uuids of the visible devices.
func (d *Daemon) uuids() []string { return d.resolve(d.options.VisibleDevices) }

// hold records the memory of a server and its clients on the simulated GPUs.
func (d *Daemon) hold(s *server) error {
	held := nvmlsim.MPSServer{PID: s.pid, Daemon: d.name, Name: s.name, Memory: map[string]uint64{}}
	clients := map[int]map[string]uint64{}
	for i, device := range s.devices {
		held.Memory[device.UUID] = serverBytes
		for _, c := range s.present() {
			if c.user.pid <= 0 {
				// A client in a PID namespace that this one does not contain has no PID here.
				held.Memory[device.UUID] += c.contextBytes(device) + c.devices[i].UsedBytes
				continue
			}
			// A process with several connections is one client.
			if clients[c.user.pid] == nil {
				clients[c.user.pid] = map[string]uint64{}
			}
			clients[c.user.pid][device.UUID] += c.contextBytes(device) + c.devices[i].UsedBytes
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(clients)) {
		held.Clients = append(held.Clients, nvmlsim.MPSClient{PID: pid, Memory: clients[pid]})
	}
	return d.sim.SetMPSServer(held)
}

// forget removes what a server leaves behind.
func (d *Daemon) forget(s *server) {
	_ = os.Remove(filepath.Join(d.options.Shm, s.shm))
	_ = d.sim.RemoveMPSServer(d.name, s.name)
}

// serverEnded follows the end of a server's process, which may have been
// killed.
func (d *Daemon) serverEnded(s *server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(s)
	d.logs.control(d.pid, "Server %d exited", s.pid)
	s.status = ended
	d.end(fail(errRPCFailure, "the MPS server %d has ended", s.pid), s.present()...)
	d.record.Servers = append(d.record.Servers, s.record())
	if s.name != "" {
		d.named = slices.DeleteFunc(d.named, func(other *server) bool { return other == s })
		d.closeAll(s, d.closing)
		d.save()
		return
	}
	d.server = nil
	d.admitPending()
}

// servers are all servers that run.
func (d *Daemon) servers() []*server {
	if d.server != nil {
		return append([]*server{d.server}, d.named...)
	}
	return d.named
}

// stop lets the process of a server end; serverEnded follows.
func (s *server) stop() {
	s.stopping = true
	_ = s.stdin.Close()
}

// present are the clients that have not left.
func (s *server) present() []*client {
	var present []*client
	for _, c := range s.clients {
		if c.ended == "" {
			present = append(present, c)
		}
	}
	return present
}

// byPID finds a client that has not left.
func (s *server) byPID(pid int) *client {
	i := slices.IndexFunc(s.clients, func(c *client) bool { return c.ended == "" && c.user.pid == pid })
	if i < 0 {
		return nil
	}
	return s.clients[i]
}

// maxClients is how many clients the devices admit at a time.
func (s *server) maxClients() int {
	most := nvmlsim.MPSMaxClients
	for _, d := range s.devices {
		most = min(most, d.MPSClients)
	}
	return most
}

func (s *server) record() ServerRecord {
	r := ServerRecord{PID: s.pid, UID: s.uid, Status: s.status, Limits: s.limits.clone(), Name: s.name}
	for _, n := range s.namespaces {
		r.Namespaces = append(r.Namespaces, n.NamespaceRecord)
	}
	for _, c := range last(s.clients, keptClients) {
		r.Clients = append(r.Clients, c.record())
	}
	return r
}

// end closes the record of a server whose daemon did not live to do it.
func (r *ServerRecord) end(how string) {
	if r.Status == ended {
		return
	}
	r.Status = ended
	for i := range r.Clients {
		if r.Clients[i].Ended == "" {
			r.Clients[i].Ended = how
		}
	}
}

// fault makes the servers fail as a fatal exception of a client does: all its
// clients get errors, no other is admitted until they have gone, and the
// server is as new then.
func (d *Daemon) fault() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.servers() {
		d.faultOf(s)
	}
}

func (d *Daemon) faultOf(s *server) {
	if s.stopping {
		return
	}
	s.status = fault
	d.logs.server(s, "Server encountered a fatal exception. Shutting down")
	d.recover(s)
	d.save()
	for _, c := range s.present() {
		c.fault(fail(errLaunchFailed, "a client of the MPS server %d has caused a fatal exception", s.pid))
	}
}

// recover makes a faulty server active again once its clients have gone.
func (d *Daemon) recover(s *server) {
	if s.status == fault && len(s.present()) == 0 {
		s.status = active
		d.logs.server(s, "Active")
	}
}

func newToken() string {
	var b [8]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
