// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// The defaults of the real daemon's directories.
const (
	DefaultPipeDirectory = "/tmp/nvidia-mps"
	DefaultLogDirectory  = "/var/log/nvidia-mps"
)

// The files of a daemon in its pipe directory.
const (
	socketName = "control"
	pidName    = "nvidia-cuda-mps-control.pid"
	// privilegedName is the longest of the real daemon's sockets, for its
	// commands. Here they come to the same as clients.
	privilegedName = "control_privileged"
)

// maxSocketPath is what sun_path holds before its terminating zero.
const maxSocketPath = 107

// Options are a daemon's flags and environment.
type Options struct {
	// PipeDirectory and LogDirectory are made if they do not exist.
	PipeDirectory, LogDirectory string
	// Shm is what stands for /dev/shm.
	Shm string
	// VisibleDevices are UUIDs of GPUs and MIG devices, or indices of GPUs. Their
	// order is the order of the clients' ordinals; nil means all GPUs.
	VisibleDevices []string
	// ActiveThreadPercentage and PinnedDeviceMemLimit are the variables of
	// that name, the first defaults.
	ActiveThreadPercentage, PinnedDeviceMemLimit string
	// MultiUser lets clients of all users share one server.
	MultiUser bool
	// Protocol is 2, the default, or 3: named servers and namespaces.
	Protocol int
	// Apply is the path of a configuration file, with protocol 3.
	Apply string
	// Log receives the same lines as control.log.
	Log io.Writer
	// Server is the path of a program that calls [RunServerProcess] under the name
	// [nvmlsim.MPSServerName]. Without it the process of a server is a shell.
	Server string
	// Faults makes the running server fail with each value, as a fatal exception of a
	// client does. It is nil if there are no faults.
	Faults <-chan os.Signal
	// identify replaces credentials in tests, which have one user.
	identify func(*net.UnixConn) (user, error)
}

// Registration is what a daemon says of itself to [List].
type Registration struct {
	PID           int    `json:"pid"`
	PipeDirectory string `json:"pipeDirectory"`
	LogDirectory  string `json:"logDirectory"`
}

// Daemon is a control daemon.
type Daemon struct {
	sim     *nvmlsim.Sim
	options Options
	name    string
	uid     int
	pid     int
	quit    context.CancelFunc
	// life ends with the daemon: sockets that commands open outlive their commands.
	life context.Context
	// peers are the goroutines that serve connections and wait for servers.
	peers sync.WaitGroup
	logs  logs

	mu       sync.Mutex
	defaults Limits
	server   *server   // nil before the first client and after the last server
	named    []*server // of protocol 3, in the order of their start
	pending  []*client
	closing  bool
	record   Record // without the server that runs
}

// Run runs a daemon until ctx ends or a command stops it. It returns [simerr.ErrInUse] if
// a daemon runs in the pipe directory already, and [simerr.ErrInvalid] if the options are
// not valid. It calls ready once, when it accepts commands.
func Run(ctx context.Context, sim *nvmlsim.Sim, o Options, ready func()) error {
	pipe, err := filepath.Abs(o.PipeDirectory)
	if err != nil {
		return err
	}
	o.PipeDirectory = pipe
	if o.identify == nil {
		o.identify = credentials
	}
	if o.Protocol == 0 {
		o.Protocol = protocolLegacy
	}
	configured, err := readConfig(o)
	if err != nil {
		return err
	}
	socket := filepath.Join(pipe, socketName)
	if longest := filepath.Join(pipe, privilegedName); len(longest) > maxSocketPath {
		return fmt.Errorf("pipe directory %s: %w: the path of its socket %s is longer than the %d bytes that a socket can have", pipe, simerr.ErrInvalid, privilegedName, maxSocketPath)
	}
	defaults, err := parseLimits(o.ActiveThreadPercentage, o.PinnedDeviceMemLimit)
	if err != nil {
		return err
	}
	if err := sim.StartMPSDaemon(); err != nil {
		return err
	}
	for _, dir := range []string{pipe, o.LogDirectory} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	d := &Daemon{sim: sim, options: o, name: nameOf(pipe), uid: os.Getuid(), pid: os.Getpid(), quit: quit, life: ctx, defaults: defaults}
	data, err := json.Marshal(Registration{PID: d.pid, PipeDirectory: pipe, LogDirectory: o.LogDirectory})
	if err != nil {
		return err
	}
	unregister, err := sim.RegisterMPSDaemon(d.name, data)
	if err != nil {
		return fmt.Errorf("an instance of this daemon is already running in %s: %w", pipe, err)
	}
	defer unregister()
	if err := d.logs.open(o.LogDirectory, o.Log); err != nil {
		return err
	}
	defer d.logs.close()
	return d.run(ctx, socket, configured, ready)
}

func (d *Daemon) run(ctx context.Context, socket string, configured []serverConfig, ready func()) error {
	if err := d.openRecord(); err != nil {
		return err
	}
	if err := d.configure(configured); err != nil { //nolint:contextcheck // servers outlive what started them
		d.shutdown()
		d.peers.Wait()
		return err
	}
	// Of one that was killed.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	pidFile := filepath.Join(d.options.PipeDirectory, pidName)
	err = errors.Join(
		// Clients of every user connect.
		os.Chmod(socket, 0o666),
		os.WriteFile(pidFile, []byte(strconv.Itoa(d.pid)), 0o644))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	d.logs.control(d.pid, "Starting control daemon using socket %s", socket)
	d.logs.control(d.pid, "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s", d.options.PipeDirectory)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	d.peers.Go(func() { d.followFaults(ctx) })
	ready()
	for {
		conn, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			d.logs.control(d.pid, "Accept failed: %v", err)
			continue
		}
		d.peers.Go(func() { d.serve(ctx, conn, nil) })
	}
	d.shutdown()
	d.peers.Wait()
	return os.Remove(pidFile)
}

// shutdown ends the server, and with it its clients.
func (d *Daemon) shutdown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	d.logs.control(d.pid, "Control daemon quits")
	for _, c := range d.pending {
		c.refuse(fail(errConnectionFailed, "the MPS control daemon quits"))
	}
	d.pending = nil
	for _, s := range d.servers() {
		s.stop()
	}
}

func (d *Daemon) followFaults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.options.Faults:
			d.fault()
		}
	}
}

// serve handles a connection of a client or a command line. through is the namespace of
// the socket; nil for the daemon's own.
func (d *Daemon) serve(ctx context.Context, conn *net.UnixConn, through *namespace) {
	p := newPeer(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		_ = conn.Close()
	}()
	user, err := d.options.identify(conn)
	if err != nil {
		d.logs.control(d.pid, "User did not send valid credentials: %v", err)
		return
	}
	request, err := p.read()
	switch {
	case err != nil:
		return
	case request.Op == opCommand && through != nil:
		_ = p.write(Reply{Error: fail(errNotPermitted, "the socket of namespace %s takes no commands", through.Name)})
	case request.Op == opCommand:
		d.serveCommands(p, user, request) //nolint:contextcheck // a server outlives the command that started it
	case request.Op == opConnect:
		d.serveClient(p, user, request, through) //nolint:contextcheck // a server outlives the connection that it was started for
	default:
		_ = p.write(Reply{Error: fail(errInvalidValue, "operation %q: want %s or %s", request.Op, opCommand, opConnect)})
	}
}

// openRecord goes on with the record of an earlier daemon.
func (d *Daemon) openRecord() error {
	before, err := ReadRecord(d.options.LogDirectory)
	if err != nil && !errors.Is(err, simerr.ErrNotFound) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = Record{PID: d.pid, Starts: 1, Devices: d.options.VisibleDevices, MultiUser: d.options.MultiUser, Protocol: d.options.Protocol}
	if before != nil {
		d.record.Starts, d.record.Servers, d.record.Refused = before.Starts+1, before.Servers, before.Refused
	}
	for i := range d.record.Servers {
		d.record.Servers[i].end("the control daemon has ended")
	}
	d.save()
	return nil
}

// save writes the record. The caller holds the lock.
func (d *Daemon) save() {
	r := d.record
	r.Defaults = d.defaults
	for _, s := range d.servers() {
		r.Servers = append(last(r.Servers, keptServers-1), s.record())
	}
	if err := r.write(d.options.LogDirectory); err != nil {
		d.logs.control(d.pid, "Cannot write the record: %v", err)
	}
}

// nameOf returns the name of the daemon in a pipe directory.
func nameOf(pipe string) string {
	sum := sha256.Sum256([]byte(pipe))
	return hex.EncodeToString(sum[:8])
}
