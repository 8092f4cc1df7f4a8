// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// client is a process that has asked for a server.
type client struct {
	user  user
	asked Request
	own   Limits
	// replies holds the replies without a request, in the order of the events.
	replies chan Reply

	// What follows is guarded by the daemon's lock.

	server     *server    // nil while it waits, and when it was refused
	space      *namespace // of a named server
	attached   bool
	waited     bool
	percentage float64
	devices    []ClientDeviceRecord // by ordinal
	refused    []string
	faulty     *Error // what every allocation gets after a fault
	ended      string
}

// serveClient serves a client until it leaves or is ended.
func (d *Daemon) serveClient(p *peer, u user, r Request, through *namespace) {
	// Room for everything that can happen to it before it reads: it waits, is
	// admitted, its server has a fault, it is ended.
	c := &client{user: u, asked: r, replies: make(chan Reply, 4)}
	own, err := parseLimits(r.ActiveThreadPercentage, r.PinnedDeviceMemLimit)
	d.mu.Lock()
	switch {
	case err != nil:
		d.refuse(c, fail(errInvalidValue, "%v", err))
	case d.options.Protocol == protocolNamed:
		c.own = own
		d.admitTo(c, through)
	case d.uid != 0 && u.uid != d.uid:
		d.logs.control(d.pid, "User did not send valid credentials")
		d.refuse(c, fail(errConnectionFailed, "the MPS control daemon of user %d serves no other user, and this is user %d", d.uid, u.uid))
	default:
		c.own = own
		d.admit(c)
	}
	d.mu.Unlock()

	requests, stop := make(chan Request), make(chan struct{})
	defer close(stop)
	go func() {
		defer close(requests)
		for {
			r, err := p.read()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stop:
				return
			}
		}
	}()
	for {
		select {
		case reply := <-c.replies:
			if err := p.write(reply); err != nil || reply.Error != nil && reply.Error.Name != errLaunchFailed {
				d.leave(c)
				return
			}
		case r, ok := <-requests:
			if !ok {
				d.leave(c)
				p.flush(c.replies)
				return
			}
			reply := d.handle(c, r)
			if reply == nil {
				continue
			}
			if err := p.write(*reply); err != nil {
				d.leave(c)
				return
			}
		}
	}
}

// admit makes a client one of the server's, lets it wait, or refuses it. The
// caller holds the lock.
func (d *Daemon) admit(c *client) {
	// A client initialises CUDA although its server has done so long ago.
	if why := d.notReady(); why != "" {
		d.refuse(c, fail(errSystemNotReady, "%s", why))
		return
	}
	s := d.server
	if s == nil {
		uid := c.user.uid
		if d.options.MultiUser {
			uid = d.uid
		}
		if err := d.startServer(uid); err != nil {
			d.logs.control(d.pid, "Cannot start a server for user %d: %v", uid, err)
			d.refuse(c, fail(errConnectionFailed, "the MPS server does not start: %v", err))
			return
		}
		s = d.server
	}
	switch {
	case s.stopping, len(d.pending) > 0 || !d.options.MultiUser && s.uid != c.user.uid:
		d.wait(c, s)
		return
	case s.status == fault:
		d.refuse(c, fail(errServerNotReady, "the MPS server %d recovers from a fatal exception when its clients have ended", s.pid))
		return
	case len(s.present()) >= s.maxClients():
		d.refuse(c, fail(errMaxClientsReached, "the MPS server %d has %d clients, as many as a device admits", s.pid, s.maxClients()))
		return
	}
	c.percentage, c.devices = min(s.limits.ActiveThreadPercentage, c.own.ActiveThreadPercentage), nil
	for i, device := range s.devices {
		limit := tighter(s.limits.forDevice(i, device.UUID), c.own.forDevice(i, device.UUID))
		c.devices = append(c.devices, ClientDeviceRecord{UUID: device.UUID, LimitBytes: limit})
	}
	d.welcome(c, s)
}

// contextBytes returns the memory of the client's context on a device. It depends on the
// multiprocessors that the client sees.
func (c *client) contextBytes(device nvmlsim.ComputeDevice) uint64 {
	return device.ContextBytes(device.MPSMultiprocessors(c.percentage))
}

// limitedBytes returns the memory of a client that counts against its memory limit. The
// context counts, as was measured with release 580 (protocol 2) and 615 (protocol 3).
func (c *client) limitedBytes(i int) uint64 {
	return c.devices[i].UsedBytes + c.contextBytes(c.server.devices[i])
}

// memory returns what CUDA reports to a client as the size of a device. A memory limit of
// MPS bounds the free memory, and does not change the total.
func (d *Daemon) memory(c *client, i int) (*Memory, *Error) {
	total, free, err := d.sim.MemoryInfo(c.user.pid, c.devices[i].UUID)
	if err != nil {
		return nil, fail(errLaunchFailed, "%v", err)
	}
	if limit := c.devices[i].LimitBytes; limit > 0 {
		free = min(free, limit-min(limit, c.limitedBytes(i)))
	}
	return &Memory{TotalBytes: total, FreeBytes: free}, nil
}

// welcome makes a client with its limits one of the server's.
func (d *Daemon) welcome(c *client, s *server) {
	c.server = s
	s.clients = append(s.clients, c)
	if err := d.hold(s); err != nil {
		s.clients = s.clients[:len(s.clients)-1]
		c.server = nil
		name := errOutOfMemory
		if errors.Is(err, simerr.ErrInUse) {
			name = errDeviceUnavailable
		}
		d.refuse(c, fail(name, "no context: %v", err))
		return
	}
	d.logs.control(d.pid, "NEW CLIENT %d from user %d: Server already exists", c.user.pid, c.user.uid)
	d.logs.server(s, "Received new client request from %d", c.user.pid)
	d.save()
	c.replies <- Reply{Server: s.pid, Shm: s.shm}
}

// notReady says why CUDA does not initialise on the daemon's devices; empty if it
// does. A device that is gone is for the server to refuse.
func (d *Daemon) notReady() string {
	devices, err := d.sim.ComputeDevices(d.uuids()...)
	if err != nil {
		return ""
	}
	for _, device := range devices {
		if device.NotReady != "" {
			return fmt.Sprintf("%s: %s", device.UUID, device.NotReady)
		}
	}
	return ""
}

// wait queues a client for the next server.
func (d *Daemon) wait(c *client, s *server) {
	d.logs.control(d.pid, "NEW CLIENT %d from user %d: Server is not ready, push client to pending list", c.user.pid, c.user.uid)
	d.pending = append(d.pending, c)
	if !c.waited {
		c.waited = true
		c.replies <- Reply{Waiting: fmt.Sprintf("server %d of user %d has clients", s.pid, s.uid)}
	}
	if len(s.present()) == 0 && !s.stopping {
		s.stop()
	}
}

// admitPending connects the waiting clients after the end of a server.
func (d *Daemon) admitPending() {
	pending := d.pending
	d.pending = nil
	for _, c := range pending {
		d.admit(c)
	}
}

func (d *Daemon) refuse(c *client, e *Error) {
	d.record.Refused = append(d.record.Refused, Refusal{PID: c.user.pid, UID: c.user.uid, Error: *e})
	d.save()
	c.refuse(e)
}

// refuse ends a client that has no server.
func (c *client) refuse(e *Error) {
	c.ended = e.Error()
	c.replies <- Reply{Error: e}
}

// end ends clients of a server. It updates the record before it replies to them.
func (d *Daemon) end(e *Error, clients ...*client) {
	for _, c := range clients {
		c.ended = e.Error()
	}
	d.save()
	for _, c := range clients {
		c.replies <- Reply{Error: e}
	}
}

// fault makes everything that a client does from now on fail.
func (c *client) fault(e *Error) {
	if c.faulty == nil {
		c.faulty = e
		c.replies <- Reply{Error: e}
	}
}

// leave follows a client's end.
func (d *Daemon) leave(c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.pending, c); i >= 0 {
		d.pending = slices.Delete(d.pending, i, i+1)
		// It may have been all that the others waited for.
		d.admitPending()
	}
	s := c.server
	if s == nil {
		return
	}
	if c.ended == "" {
		c.ended = "it has left"
	}
	d.logs.server(s, "Client process %d disconnected", c.user.pid)
	if !slices.Contains(d.servers(), s) {
		return
	}
	if err := d.hold(s); err != nil {
		d.logs.server(s, "Cannot give memory back: %v", err)
	}
	d.recover(s)
	d.save()
	if len(d.pending) > 0 && len(s.present()) == 0 {
		s.stop()
	}
}

// handle executes the request of a client. It returns nil if the client was ended
// meanwhile; the client receives that message separately.
func (d *Daemon) handle(c *client, r Request) *Reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.ended != "":
		return nil
	case c.server == nil || !c.attached && r.Op != opAttach:
		return &Reply{Error: fail(errInvalidValue, "operation %q before %q", r.Op, opAttach)}
	case r.Op == opAttach:
		return d.attach(c, r.Token)
	case c.faulty != nil:
		return &Reply{Error: c.faulty}
	case r.Op != opAlloc && r.Op != opFree && r.Op != opInfo:
		return &Reply{Error: fail(errInvalidValue, "operation %q", r.Op)}
	case r.Device < 0 || r.Device >= len(c.devices):
		return &Reply{Error: fail(errInvalidDevice, "device %d: there are %d", r.Device, len(c.devices))}
	}
	if r.Op == opInfo {
		memory, err := d.memory(c, r.Device)
		return &Reply{Memory: memory, Error: err}
	}
	device := &c.devices[r.Device]
	if r.Op == opFree {
		device.UsedBytes -= min(r.Bytes, device.UsedBytes)
		if err := d.hold(c.server); err != nil {
			return &Reply{Error: fail(errLaunchFailed, "%v", err)}
		}
	} else if err := d.allocate(c, r.Device, r.Bytes); err != nil {
		c.refused = append(c.refused, err.Message)
		d.save()
		return &Reply{Error: err}
	}
	d.save()
	used := device.UsedBytes
	return &Reply{UsedBytes: &used}
}

func (d *Daemon) attach(c *client, token string) *Reply {
	s := c.server
	if token != s.token {
		e := fail(errConnectionFailed, "this is not what %s of the MPS server %d holds: client and server need the same /dev/shm", s.shm, s.pid)
		d.record.Refused = append(d.record.Refused, Refusal{PID: c.user.pid, UID: c.user.uid, Error: *e})
		d.end(e, c)
		return nil
	}
	c.attached = true
	granted := &Granted{Server: s.pid, ActiveThreadPercentage: c.percentage}
	for i, device := range s.devices {
		granted.Devices = append(granted.Devices, GrantedDevice{
			Ordinal: i, UUID: device.UUID, Name: device.Name, MemoryBytes: device.MemoryBytes, LimitBytes: c.devices[i].LimitBytes,
			Multiprocessors: device.MPSMultiprocessors(c.percentage),
		})
	}
	return &Reply{Client: granted}
}

// allocate takes memory of a device within the client's limit and what the
// device has left.
func (d *Daemon) allocate(c *client, i int, bytes uint64) *Error {
	device := &c.devices[i]
	if used := c.limitedBytes(i); device.LimitBytes > 0 && bytes > device.LimitBytes-min(used, device.LimitBytes) {
		return fail(errOutOfMemory, "%d MiB of %s: the client has %d MiB of its limit of %d MiB", bytes>>20, device.UUID, used>>20, device.LimitBytes>>20)
	}
	if device.UsedBytes+bytes < bytes {
		return fail(errOutOfMemory, "%d MiB of %s", bytes>>20, device.UUID)
	}
	before := device.UsedBytes
	device.UsedBytes += bytes
	if err := d.hold(c.server); err != nil {
		device.UsedBytes = before
		if errors.Is(err, simerr.ErrNoCapacity) {
			return fail(errOutOfMemory, "%v", err)
		}
		return fail(errLaunchFailed, "%v", err)
	}
	device.PeakBytes = max(device.PeakBytes, device.UsedBytes)
	return nil
}

func (c *client) record() ClientRecord {
	namespace := ""
	if c.space != nil {
		namespace = c.space.Name
	}
	return ClientRecord{
		Namespace: namespace,
		PID:       c.user.pid, UID: c.user.uid,
		AskedThreadPercentage: c.asked.ActiveThreadPercentage, AskedMemoryLimit: c.asked.PinnedDeviceMemLimit,
		ActiveThreadPercentage: c.percentage, Devices: slices.Clone(c.devices), Refused: slices.Clone(c.refused), Ended: c.ended,
	}
}
