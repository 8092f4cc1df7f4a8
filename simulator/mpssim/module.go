// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// commandOf runs a command in the protocol of its command line. A daemon has one
// protocol, whatever the command line was started with.
func (d *Daemon) commandOf(protocol int, words []string) (output string, status int, quit bool) {
	if protocol != d.options.Protocol {
		return fmt.Sprintf("The MPS control daemon runs with protocol %d\n", d.options.Protocol), 1, false
	}
	if protocol == protocolLegacy {
		output, quit = d.command(words)
		return output, 0, quit
	}
	if slices.Equal(words, []string{"--quit"}) {
		return "", 0, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	output, err := d.module(words)
	d.save()
	if err != nil {
		return "Error: " + err.Error() + "\n", 1, false
	}
	return output, 0, false
}

// arguments are the words after module and verb.
type arguments struct {
	names  []string
	values map[string]string
	flags  []string
}

func parseWords(words []string, allowed ...string) (arguments, error) {
	a := arguments{values: map[string]string{}}
	for _, word := range words {
		key, value, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		switch {
		case !hasValue && !strings.HasPrefix(word, "--"):
			a.names = append(a.names, word)
			continue
		case !slices.Contains(allowed, key):
			return a, fmt.Errorf("unknown option '%s'", key)
		case hasValue:
			a.values[key] = value
		default:
			a.flags = append(a.flags, key)
		}
	}
	return a, nil
}

func (a arguments) name() (string, error) {
	if len(a.names) != 1 {
		return "", errors.New("usage: one name is required")
	}
	return a.names[0], nil
}

func (a arguments) has(flag string) bool { return slices.Contains(a.flags, flag) }

// module runs a command of protocol 3: module, verb, arguments. The caller holds the
// lock.
func (d *Daemon) module(words []string) (string, error) {
	if len(words) < 2 {
		return "", errors.New("usage: nvidia-cuda-mps-control <module> <verb> [arguments]")
	}
	limits := []string{"pinned-memory-limit", "active-thread-percentage", "client-priority"}
	options, known := map[string][]string{
		"server create": {"uid", "allowed-devices"}, "server delete": {"force"}, "server list": {"format"}, "server set": limits, "server get": {},
		"namespace create": {"server"}, "namespace delete": {"server", "force"}, "namespace list": {"server", "format"},
		"namespace set": append([]string{"server"}, limits...), "namespace get": {},
		"client list": {"server", "all", "format"}, "client terminate": {},
	}[words[0]+" "+words[1]]
	if !known {
		return "", fmt.Errorf("unknown command '%s %s'", words[0], words[1])
	}
	a, err := parseWords(words[2:], options...)
	if err != nil {
		return "", err
	}
	switch words[0] {
	case "server":
		return d.serverModule(words[1], a)
	case "namespace":
		return d.namespaceModule(words[1], a)
	default:
		return d.clientModule(words[1], a)
	}
}

func (d *Daemon) serverModule(verb string, a arguments) (string, error) {
	if verb == "list" {
		return d.listServers(a)
	}
	if verb == "get" {
		return "", errors.New("unknown command: the stand-in has no 'server get'")
	}
	name, err := a.name()
	if err != nil {
		return "", err
	}
	switch verb {
	case "create":
		uid := d.uid
		if text, given := a.values["uid"]; given {
			if uid, err = strconv.Atoi(text); err != nil || uid < 0 {
				return "", fmt.Errorf("invalid uid '%s'", text)
			}
		}
		var allowed []string
		if text := a.values["allowed-devices"]; text != "" {
			allowed = strings.Split(text, ",")
		}
		_, err = d.createServer(name, uid, allowed)
		return "", err
	case "delete":
		return "", d.deleteServer(name, a.has("force"))
	default: // set
		s, err := d.find(name)
		if err != nil {
			return "", err
		}
		return "", setAll(s.namespaces[0], a.values)
	}
}

// setAll sets the limits, at least one, or none of them.
func setAll(n *namespace, values map[string]string) error {
	if len(values) == 0 {
		return errors.New("usage: at least one option is required")
	}
	changed := *n
	for key, value := range values {
		if err := changed.set(key, value); err != nil {
			return err
		}
	}
	n.NamespaceRecord = changed.NamespaceRecord
	return nil
}

func (d *Daemon) namespaceModule(verb string, a arguments) (string, error) {
	of, given := a.values["server"]
	switch {
	case verb == "get" && len(a.names) == 3:
		of = a.names[1]
	case verb == "get":
		return "", errors.New("usage: namespace get <name> <server> <field>")
	case verb == "list" && !given:
		return d.listNamespaces(a, d.named)
	case !given:
		return "", errors.New("usage: --server is required")
	}
	s, err := d.find(of)
	if err != nil {
		return "", err
	}
	if verb == "list" {
		return d.listNamespaces(a, []*server{s})
	}
	if verb == "get" {
		n, err := s.find(a.names[0])
		if err != nil {
			return "", err
		}
		return n.get(a.names[2])
	}
	name, err := a.name()
	if err != nil {
		return "", err
	}
	delete(a.values, "server")
	switch verb {
	case "create":
		_, err = d.createNamespace(s, name)
		return "", err
	case "delete":
		return "", d.deleteNamespace(s, name, a.has("force"))
	default: // set
		n, err := s.find(name)
		if err != nil {
			return "", err
		}
		return "", setAll(n, a.values)
	}
}

// get returns a field of a namespace, as the list shows it.
func (n *namespace) get(field string) (string, error) {
	i := slices.Index(namespaceColumns, field)
	if i < 0 {
		return "", fmt.Errorf("unknown field '%s'", field)
	}
	return n.row()[i] + "\n", nil
}

func (d *Daemon) clientModule(verb string, a arguments) (string, error) {
	if verb == "list" {
		of, given := a.values["server"]
		var rows [][]string
		for _, s := range d.named {
			if given && s.name != of {
				continue
			}
			for _, c := range s.present() {
				rows = append(rows, []string{strconv.Itoa(c.user.pid), s.name, "0", c.space.Name, "-"})
			}
		}
		return table(a, []string{"pid", "server", "device", "maws-ns", "cmd"}, rows)
	}
	name, err := a.name()
	if err != nil {
		return "", err
	}
	pid, err := strconv.Atoi(name)
	for _, s := range d.named {
		if c := s.byPID(pid); err == nil && c != nil {
			d.end(fail(errClientTerminated, "terminated by command"), c)
			return "", nil
		}
	}
	return "", fmt.Errorf("client '%s' not found", name)
}

func (d *Daemon) listServers(a arguments) (string, error) {
	var rows [][]string
	for _, s := range d.named {
		if len(a.names) > 0 && a.names[0] != s.name {
			continue
		}
		allowed := "-"
		if len(s.allowed) > 0 {
			allowed = strings.Join(s.allowed, ",")
		}
		rows = append(rows, []string{s.name, strconv.Itoa(s.uid), strconv.Itoa(s.pid), s.namedStatus(), d.pipe(s), allowed, "-"})
	}
	return table(a, []string{"name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"}, rows)
}

// namedStatus is the status as protocol 3 prints it.
func (s *server) namedStatus() string {
	if s.status == active {
		return "Ready"
	}
	return "Fault"
}

// namespaceColumns are the columns of the list of namespaces.
var namespaceColumns = []string{"name", "server", "server-status", "pinned-memory-limit", "active-thread-percentage", "client-priority", "pipe-directory"}

func (n *namespace) row() []string {
	return []string{n.Name, n.server.name, n.server.namedStatus(), formatLimit(n.PinnedMemoryLimit), formatPercentage(n.ActiveThreadPercentage), "0", n.folder}
}

func (d *Daemon) listNamespaces(a arguments, servers []*server) (string, error) {
	var rows [][]string
	for _, s := range servers {
		for _, n := range s.namespaces {
			if len(a.names) == 0 || a.names[0] == n.Name {
				rows = append(rows, n.row())
			}
		}
	}
	return table(a, namespaceColumns, rows)
}

// table writes rows in the requested format.
func table(a arguments, columns []string, rows [][]string) (string, error) {
	format, header, _ := strings.Cut(a.values["format"], ",")
	if header != "noheader" && header != "" {
		return "", fmt.Errorf("invalid format '%s'", a.values["format"])
	}
	if header == "" {
		var titles []string
		for _, c := range columns {
			titles = append(titles, strings.ToUpper(strings.ReplaceAll(c, "-", " ")))
		}
		rows = append([][]string{titles}, rows...)
	}
	var b strings.Builder
	switch format {
	case "csv":
		for _, row := range rows {
			b.WriteString(strings.Join(row, ",") + "\n")
		}
	case "", "table":
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		_ = w.Flush()
	default:
		return "", fmt.Errorf("invalid format '%s'", a.values["format"])
	}
	return b.String(), nil
}
