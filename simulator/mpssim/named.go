// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The protocols of a daemon: the legacy one, and the one with named servers and
// namespaces.
const (
	protocolLegacy = 2
	protocolNamed  = 3
)

// defaultNamespace is the namespace that every server has.
const defaultNamespace = "default"

// namespace is a namespace of a named server.
type namespace struct {
	NamespaceRecord
	server    *server
	folder    string
	listeners []*net.UnixListener
}

// validName matches the names of servers and namespaces.
var validName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("invalid name %q: lowercase letters, digits and underscores, up to 64", name)
	}
	return nil
}

// find returns a running server by its name.
func (d *Daemon) find(name string) (*server, error) {
	if i := slices.IndexFunc(d.named, func(s *server) bool { return s.name == name }); i >= 0 {
		return d.named[i], nil
	}
	return nil, fmt.Errorf("server '%s' not found", name)
}

func (s *server) find(name string) (*namespace, error) {
	if i := slices.IndexFunc(s.namespaces, func(n *namespace) bool { return n.Name == name }); i >= 0 {
		return s.namespaces[i], nil
	}
	return nil, fmt.Errorf("namespace '%s' not found", name)
}

// pipe is the folder of a server in the pipe directory.
func (d *Daemon) pipe(s *server) string { return filepath.Join(d.options.PipeDirectory, s.name) }

// createServer starts a named server. As with the real daemon it succeeds for devices
// that are not there; the process then ends at once and the server disappears.
func (d *Daemon) createServer(name string, uid int, allowed []string) (*server, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, err := d.find(name); err == nil {
		return nil, fmt.Errorf("server '%s' already exists", name)
	}
	switch {
	case d.options.MultiUser && uid != 0:
		return nil, fmt.Errorf("invalid uid %d: in multiuser mode servers have uid 0", uid)
	case d.uid != 0 && uid != d.uid && !d.options.MultiUser:
		return nil, fmt.Errorf("permission denied: this daemon starts servers of uid %d only", d.uid)
	}
	s := &server{name: name, uid: uid, allowed: allowed, limits: Limits{ActiveThreadPercentage: 100}}
	uuids := d.uuids()
	if len(allowed) > 0 {
		uuids = d.resolve(allowed)
	}
	ended, err := d.launch(s, uuids)
	if err != nil {
		d.logs.server(s, "no CUDA-capable device is detected: %v", err)
		d.logs.control(d.pid, "Server %s exited", name)
		return s, nil
	}
	d.named = append(d.named, s)
	d.follow(s, ended)
	if _, err := d.createNamespace(s, defaultNamespace); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// createNamespace opens the sockets of a namespace: one in its folder, and for the
// default one also in the folder of the server. Folders of an earlier daemon stay:
// containers may have them mounted.
func (d *Daemon) createNamespace(s *server, name string) (*namespace, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, err := s.find(name); err == nil {
		return nil, fmt.Errorf("namespace '%s' already exists", name)
	}
	n := &namespace{NamespaceRecord: NamespaceRecord{Name: name}, server: s, folder: filepath.Join(d.pipe(s), name)}
	folders := []string{n.folder}
	if name == defaultNamespace {
		folders = append(folders, d.pipe(s))
	}
	for _, folder := range folders {
		if err := d.listen(n, folder); err != nil {
			n.close()
			return nil, err
		}
	}
	s.namespaces = append(s.namespaces, n)
	return n, nil
}

// listen lets clients connect through a folder.
func (d *Daemon) listen(n *namespace, folder string) error {
	socket := filepath.Join(folder, socketName)
	if len(socket) > maxSocketPath {
		return fmt.Errorf("invalid path: %s is longer than %d bytes", socket, maxSocketPath)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	n.listeners = append(n.listeners, listener)
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	d.peers.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			d.peers.Go(func() { d.serve(d.life, conn, n) })
		}
	})
	return nil
}

// close removes the sockets of a namespace.
func (n *namespace) close() {
	for _, l := range n.listeners {
		_ = l.Close()
	}
}

// closeAll removes the sockets of a server that has ended, and on request its folders.
func (d *Daemon) closeAll(s *server, folders bool) {
	for _, n := range s.namespaces {
		n.close()
		if folders {
			_ = os.Remove(n.folder)
		}
	}
	if folders {
		_ = os.Remove(d.pipe(s))
	}
}

// deleteNamespace removes a namespace. Its clients go on: NVIDIA's documents say only
// that it can be deleted with clients.
func (d *Daemon) deleteNamespace(s *server, name string, force bool) error {
	n, err := s.find(name)
	switch {
	case err != nil:
		return err
	case name == defaultNamespace:
		return errors.New("cannot delete the default namespace")
	case !force && slices.ContainsFunc(s.present(), func(c *client) bool { return c.space == n }):
		return fmt.Errorf("cannot delete namespace '%s': it has active clients", name)
	}
	n.close()
	_ = os.Remove(n.folder)
	s.namespaces = slices.DeleteFunc(s.namespaces, func(other *namespace) bool { return other == n })
	return nil
}

// deleteServer ends a server, and its clients if it is forced.
func (d *Daemon) deleteServer(name string, force bool) error {
	s, err := d.find(name)
	if err != nil {
		return err
	}
	if present := s.present(); len(present) > 0 {
		if !force {
			return fmt.Errorf("cannot delete server '%s': it has %d active clients", name, len(present))
		}
		d.end(fail(errClientTerminated, "server %s is deleted", name), present...)
	}
	s.stop()
	d.named = slices.DeleteFunc(d.named, func(other *server) bool { return other == s })
	d.closeAll(s, true)
	return nil
}

// admitTo admits a client that has connected through a namespace or the socket of the
// daemon. The socket leads to the first server of its user. The caller holds the lock.
func (d *Daemon) admitTo(c *client, n *namespace) {
	if why := d.notReady(); why != "" {
		d.refuse(c, fail(errSystemNotReady, "%s", why))
		return
	}
	if n == nil {
		uid := c.user.uid
		if d.options.MultiUser {
			uid = 0
		}
		i := slices.IndexFunc(d.named, func(s *server) bool { return s.uid == uid })
		if i < 0 {
			d.refuse(c, fail(errConnectionFailed, "the MPS control daemon has no server of user %d", uid))
			return
		}
		n = d.named[i].namespaces[0]
	}
	s := n.server
	switch {
	case !slices.Contains(d.named, s) || s.stopping || !slices.Contains(s.namespaces, n):
		d.refuse(c, fail(errConnectionFailed, "namespace %s of server %s has ended", n.Name, s.name))
		return
	case !d.options.MultiUser && c.user.uid != s.uid:
		d.refuse(c, fail(errNotPermitted, "server %s is for user %d, and this is user %d", s.name, s.uid, c.user.uid))
		return
	case s.status == fault:
		d.refuse(c, fail(errServerNotReady, "the MPS server %d recovers from a fatal exception when its clients have ended", s.pid))
		return
	case len(s.present()) >= s.maxClients():
		d.refuse(c, fail(errMaxClientsReached, "the MPS server %d has %d clients, as many as a device admits", s.pid, s.maxClients()))
		return
	}
	c.space = n
	d.limit(c, s, n)
	d.welcome(c, s)
}

// limit sets the limits of a client of a namespace. The namespace's percentage replaces
// the client's own. The tighter memory limit counts, but none at all if the client's own
// names a device that it does not see.
func (d *Daemon) limit(c *client, s *server, n *namespace) {
	c.percentage, c.devices = c.own.ActiveThreadPercentage, nil
	if n.ActiveThreadPercentage > 0 {
		c.percentage = n.ActiveThreadPercentage
	}
	invisible := slices.ContainsFunc(c.own.DeviceMemory, func(l DeviceLimit) bool {
		for i, device := range s.devices {
			if l.Device == strconv.Itoa(i) || l.Device == device.UUID {
				return false
			}
		}
		return true
	})
	for i, device := range s.devices {
		granted := ClientDeviceRecord{UUID: device.UUID}
		if !invisible {
			granted.LimitBytes = tighter(n.PinnedMemoryLimit, c.own.forDevice(i, device.UUID))
		}
		c.devices = append(c.devices, granted)
	}
}

// resolve returns the UUIDs of devices, each given by its UUID or the index of a GPU.
func (d *Daemon) resolve(refs []string) []string {
	gpus := d.sim.Model().GPUs
	var uuids []string
	for _, ref := range refs {
		if i, err := strconv.Atoi(ref); err == nil && i >= 0 && i < len(gpus) {
			if all, err := d.sim.ComputeDevices(); err == nil {
				ref = all[i].UUID
			}
		}
		uuids = append(uuids, ref)
	}
	return uuids
}

// set changes limits of a namespace for clients that connect later.
func (n *namespace) set(key, value string) error {
	switch key {
	case "pinned-memory-limit":
		bytes, err := parseLimit(value)
		if err != nil {
			return err
		}
		n.PinnedMemoryLimit = bytes
	case "active-thread-percentage":
		p, err := parsePercentage(value)
		if err != nil || p < 1 {
			return fmt.Errorf("invalid active thread percentage '%s': 1 to 100", value)
		}
		n.ActiveThreadPercentage = p
	case "client-priority":
		if value != "0" && value != "1" {
			return fmt.Errorf("invalid client priority '%s': 0 or 1", value)
		}
	default:
		return fmt.Errorf("unknown option '%s'", key)
	}
	return nil
}

// parseLimit reads a size such as 4G, 512M or 1024K.
func parseLimit(s string) (uint64, error) {
	for suffix, shift := range map[string]int{"G": 30, "M": 20, "K": 10} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			if n, err := strconv.ParseUint(digits, 10, 32); err == nil && n > 0 {
				return n << shift, nil
			}
		}
	}
	return 0, fmt.Errorf("invalid memory limit '%s': want 4G, 512M or 1024K", s)
}

// formatLimit writes a size in the largest unit of which it is a multiple.
func formatLimit(bytes uint64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes%(1<<30) == 0:
		return fmt.Sprintf("%dG", bytes>>30)
	case bytes%(1<<20) == 0:
		return fmt.Sprintf("%dM", bytes>>20)
	default:
		return fmt.Sprintf("%dK", bytes>>10)
	}
}

func formatPercentage(p float64) string {
	if p == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", p)
}
