// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A daemon with namespaces runs with MPS protocol 3: in multi-user mode, with one named
// server for its devices, and a namespace with limits for each share. A container has
// only the folder of its namespace, so it reaches neither the socket for commands nor
// another namespace. Source: NVIDIA Multi-Process Service, release 615, "MPS v3".

const (
	// serverName is short, because it is a part of the path of each socket.
	serverName = "s"
	// defaultNamespace is the namespace that each server has. No client of ours uses
	// it, so it has the smallest limits that there are.
	defaultNamespace = "default"
	defaultThreads   = 1
	defaultMemory    = mebibyte
)

// protocol has the program use protocol 3.
func protocol(args ...string) []string { return append([]string{"-p", "3"}, args...) }

// errNoServer is the error if the server of a daemon is missing: without it, clients
// compute without MPS and without limits.
var errNoServer = errors.New("its MPS server is not in the list of servers")

// call sends a command of protocol 3 to a daemon.
func (o *Options) call(ctx context.Context, f folders, args ...string) error {
	lines, err := o.run(ctx, f, protocol(args...), "")
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(lines, refusal.MatchString); i >= 0 {
		return fmt.Errorf("%w: it refuses a command: %q to %q", gpu.ErrNotSupported, lines[i], strings.Join(args, " "))
	}
	return nil
}

// rows calls a command that lists something, and returns the fields of each line. It
// skips lines with fewer fields, such as warnings.
func (o *Options) rows(ctx context.Context, f folders, least int, args ...string) ([][]string, error) {
	lines, err := o.run(ctx, f, protocol(append(args, "--format=csv,noheader")...), "")
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, line := range lines {
		if fields := strings.Split(strings.TrimSpace(line), ","); len(fields) >= least {
			rows = append(rows, fields)
		}
	}
	return rows, nil
}

// namedServer returns the server of a daemon. The error wraps [errNoServer] if it is
// missing.
func (o *Options) namedServer(ctx context.Context, f folders) (pid int, status string, err error) {
	rows, err := o.rows(ctx, f, 4, "server", "list")
	if err != nil {
		return 0, "", err
	}
	for _, row := range rows {
		if row[0] == serverName {
			pid, err := strconv.Atoi(row[2])
			if err != nil {
				return 0, "", fmt.Errorf("%w: the PID of its server is %q", gpu.ErrNotReady, row[2])
			}
			return pid, row[3], nil
		}
	}
	return 0, "", fmt.Errorf("%w: %w; its log says why (%s)", gpu.ErrNotReady, errNoServer, f.serverLog())
}

// namedServerStatus returns the status of the server with the number of its clients.
func (o *Options) namedServerStatus(ctx context.Context, f folders) ([]gpu.MPSServer, error) {
	pid, status, err := o.namedServer(ctx, f)
	if err != nil {
		return nil, err
	}
	rows, err := o.rows(ctx, f, 4, "client", "list", "--server="+serverName)
	if err != nil {
		return nil, err
	}
	clients := map[string]bool{} // a client of several devices may have several lines
	for _, row := range rows {
		clients[row[0]] = true
	}
	return []gpu.MPSServer{{PID: pid, State: status, Clients: len(clients)}}, nil
}

// namespaceArgs returns a command about a namespace.
func namespaceArgs(verb, name string, more ...string) []string {
	return append([]string{"namespace", verb, name, "--server=" + serverName}, more...)
}

// applyNamespaces changes a running daemon so that it has exactly the namespaces, and
// checks that. before are its namespaces; nil if they are not known.
func (o *Options) applyNamespaces(ctx context.Context, f folders, before, want []gpu.MPSNamespace) error {
	if before == nil {
		rows, err := o.rows(ctx, f, 5, "namespace", "list", "--server="+serverName)
		if err != nil {
			return err
		}
		for _, row := range rows {
			before = append(before, gpu.MPSNamespace{Name: row[0]}) // with unknown limits
		}
	}
	find := func(namespaces []gpu.MPSNamespace, name string) int {
		return slices.IndexFunc(namespaces, func(n gpu.MPSNamespace) bool { return n.Name == name })
	}
	for _, n := range before {
		if n.Name != defaultNamespace && find(want, n.Name) < 0 {
			if err := o.call(ctx, f, namespaceArgs("delete", n.Name, "--force")...); err != nil {
				return err
			}
		}
	}
	for _, n := range want {
		i := find(before, n.Name)
		if i < 0 {
			if err := o.call(ctx, f, namespaceArgs("create", n.Name)...); err != nil {
				return err
			}
		} else if before[i] == n {
			continue
		}
		limits := []string{fmt.Sprintf("--active-thread-percentage=%d", n.ThreadPercentage)}
		switch {
		case n.MemoryLimit > 0:
			limits = append(limits, fmt.Sprintf("--pinned-memory-limit=%dM", n.MemoryLimit/mebibyte))
		case i >= 0:
			limits = append(limits, fmt.Sprintf("--pinned-memory-limit=%dM", unlimited/mebibyte))
		}
		if err := o.call(ctx, f, namespaceArgs("set", n.Name, limits...)...); err != nil {
			return err
		}
	}
	return o.checkNamespaces(ctx, f, want)
}

// checkFirst returns an error unless a daemon that starts has its server, and its
// namespaces.
func (o *Options) checkFirst(ctx context.Context, f folders, want []gpu.MPSNamespace) error {
	if _, _, err := o.namedServer(ctx, f); err != nil {
		return err
	}
	return o.checkNamespaces(ctx, f, want)
}

// checkNamespaces returns an error unless the server is ready and has exactly the
// namespaces, with their limits.
func (o *Options) checkNamespaces(ctx context.Context, f folders, want []gpu.MPSNamespace) error {
	rows, err := o.rows(ctx, f, 5, "namespace", "list", "--server="+serverName)
	if err != nil {
		return err
	}
	all := append([]gpu.MPSNamespace{{Name: defaultNamespace, ThreadPercentage: defaultThreads, MemoryLimit: defaultMemory}}, want...)
	for _, n := range all {
		i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == n.Name })
		if i < 0 {
			return fmt.Errorf("%w: it has no namespace %s", gpu.ErrNotReady, n.Name)
		}
		if status := rows[i][2]; !strings.EqualFold(status, "Ready") {
			return fmt.Errorf("%w: its MPS server is %s", gpu.ErrNotReady, status)
		}
		err := setting{-1, uint64(n.ThreadPercentage)}.check(rows[i][4])
		if err == nil && n.MemoryLimit > 0 {
			err = setting{0, n.MemoryLimit}.check(rows[i][3])
		}
		if err != nil {
			return fmt.Errorf("namespace %s: %w", n.Name, err)
		}
	}
	if len(rows) != len(all) {
		return fmt.Errorf("%w: it has %d namespaces, and %d are wanted", gpu.ErrNotReady, len(rows), len(all))
	}
	return nil
}

// configuration returns the file that a daemon with namespaces starts with: containers
// that have the folder of a namespace of an earlier daemon find its limits when they
// connect.
func configuration(d gpu.MPSDaemon) string {
	var b strings.Builder
	limits := func(threads int, memory uint64) {
		fmt.Fprintf(&b, "active_thread_percentage = \"%d\"\n", threads)
		if memory > 0 {
			fmt.Fprintf(&b, "pinned_memory_limit = \"%dM\"\n", memory/mebibyte)
		}
	}
	fmt.Fprintf(&b, "schema_version = \"1.0\"\n\n[servers.%s]\nuid = 0\nallowed_devices = \"%s\"\n", serverName, strings.Join(d.Devices, ","))
	limits(defaultThreads, defaultMemory)
	for _, n := range d.Namespaces {
		fmt.Fprintf(&b, "\n[servers.%s.namespaces.%s]\n", serverName, n.Name)
		limits(n.ThreadPercentage, n.MemoryLimit)
	}
	return b.String()
}

// clearPipe removes the files of an earlier daemon from the pipe folder. The folders of
// its namespaces stay, because containers have them mounted. Only in these can
// containers create files.
func (f folders) clearPipe(ctx context.Context, namespaces []gpu.MPSNamespace) error {
	keep := func(path string) bool {
		return path == f.server() || path == f.namespace(defaultNamespace) ||
			slices.ContainsFunc(namespaces, func(n gpu.MPSNamespace) bool { return path == f.namespace(n.Name) })
	}
	for _, folder := range []string{f.pipe, f.server()} {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			if e.IsDir() && path != f.server() {
				if err := emptyFolder(ctx, path); err != nil {
					return err
				}
			}
			if e.IsDir() && keep(path) {
				continue
			}
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasProtocol3 reports whether a process was started with protocol 3.
func hasProtocol3(pid int) bool {
	all := words(pid, "cmdline")
	i := slices.Index(all, "-p")
	return i >= 0 && i+1 < len(all) && all[i+1] == "3"
}

// protocolOf names the protocol of a daemon for people.
func protocolOf(d gpu.MPSDaemon) string {
	if d.HasNamespaces() {
		return "MPS protocol 3"
	}
	return "MPS protocol 2"
}

// support is the knowledge of whether the driver has namespaces.
type support struct {
	reading    chan struct{} // holds a value while a goroutine reads it
	program    string        // of which the rest is known
	namespaces bool
}

// namespaceWord matches the name of the module in the program's help.
var namespaceWord = regexp.MustCompile(`\bnamespace\b`)

// hasNamespaces reports whether daemons can have namespaces: the driver's program lists
// the module in its help. It runs the program once for each driver. Daemons for several
// users need root.
func (o *Options) hasNamespaces(ctx context.Context) (bool, error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	select {
	case o.support.reading <- struct{}{}:
		defer func() { <-o.support.reading }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	found, err := o.findProgram()
	if err != nil || found == o.support.program {
		return o.support.namespaces && err == nil, err
	}
	// A daemon in the pipe folder would decide the protocol.
	help, err := o.run(ctx, folders{pipe: filepath.Join(o.RunDir, "none")}, protocol("-h"), "")
	if err != nil && !errors.Is(err, errExit) {
		return false, fmt.Errorf("find out whether MPS has namespaces: %w", err)
	}
	o.support.program = found
	o.support.namespaces = err == nil && slices.ContainsFunc(help, namespaceWord.MatchString)
	return o.support.namespaces, nil
}

// findProgram returns a text that changes when the driver is replaced.
func (o *Options) findProgram() (text string, err error) {
	err = o.inNamespace(func() error {
		path, err := o.Driver.Find(program, os.Stat)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		text = fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotRun, err)
	}
	return text, err
}

// checkSupport returns an error if a daemon with namespaces cannot be started.
func (o *Options) checkSupport(ctx context.Context) error {
	supported, err := o.hasNamespaces(ctx)
	if err == nil && !supported {
		err = fmt.Errorf("%w: its shares were prepared with namespaces (MPS protocol 3), which the driver does not have: install a driver of release 615 or newer, or end the pods of the shares", gpu.ErrNotSupported)
	}
	return err
}
