// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"fmt"
	"strconv"
	"strings"
)

// serveCommands serves a command line.
func (d *Daemon) serveCommands(p *peer, u user, first Request) {
	if u.uid != 0 && u.uid != d.uid {
		d.logs.control(d.pid, "User did not send valid credentials")
		_ = p.write(Reply{Error: fail(errConnectionFailed, "only root and user %d command this daemon, and this is user %d", d.uid, u.uid)})
		return
	}
	d.logs.control(d.pid, "NEW UI")
	defer d.logs.control(d.pid, "UI closed")
	for r, err := first, error(nil); err == nil && r.Op == opCommand; r, err = p.read() {
		d.logs.control(d.pid, "Cmd:%s", r.Command)
		output, status, quit := d.commandOf(max(r.Protocol, protocolLegacy), strings.Fields(r.Command))
		if err := p.write(Reply{Output: &output, Status: status}); err != nil {
			return
		}
		if quit {
			d.quit()
			return
		}
	}
}

// command runs one command. The output contains its errors.
func (d *Daemon) command(words []string) (output string, quit bool) {
	if len(words) == 0 {
		return "", false
	}
	name, args := words[0], words[1:]
	// quit accepts a time to wait for the servers, which is ignored: they end at
	// once.
	if name == "quit" {
		return "", true
	}
	run, ok := commands[name]
	switch {
	case !ok:
		return fmt.Sprintf("Unknown command: %s\n", name), false
	case len(args) != len(strings.Fields(run.usage)):
		return fmt.Sprintf("Usage: %s %s\n", name, run.usage), false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	output, err := run.do(d, args)
	if err != nil {
		return err.Error() + "\n", false
	}
	d.save()
	return output, false
}

// commands by name. The caller holds the lock, and has counted the arguments.
var commands = map[string]struct {
	usage string
	do    func(*Daemon, []string) (string, error)
}{
	"start_server":    {"-uid UID", startServer},
	"get_server_list": {"", getServerList},
	"get_server_status": {"PID", onServer(func(_ *Daemon, s *server, _ []string) (string, error) {
		return s.status + "\n", nil
	})},
	"get_client_list": {"PID", onServer(func(_ *Daemon, s *server, _ []string) (string, error) {
		var b strings.Builder
		for _, c := range s.present() {
			fmt.Fprintln(&b, c.user.pid)
		}
		return b.String(), nil
	})},
	"terminate_client": {"SERVER_PID CLIENT_PID", onServer(terminateClient)},

	"set_default_active_thread_percentage": {"PERCENTAGE", func(d *Daemon, args []string) (string, error) {
		return setPercentage(&d.defaults, args[0])
	}},
	"get_default_active_thread_percentage": {"", func(d *Daemon, _ []string) (string, error) {
		return getPercentage(d.defaults), nil
	}},
	"set_active_thread_percentage": {"PID PERCENTAGE", onServer(func(_ *Daemon, s *server, args []string) (string, error) {
		return setPercentage(&s.limits, args[0])
	})},
	"get_active_thread_percentage": {"PID", onServer(func(_ *Daemon, s *server, _ []string) (string, error) {
		return getPercentage(s.limits), nil
	})},

	"set_default_device_pinned_mem_limit": {"DEVICE SIZE", func(d *Daemon, args []string) (string, error) {
		return setMemory(&d.defaults, args)
	}},
	"get_default_device_pinned_mem_limit": {"DEVICE", func(d *Daemon, args []string) (string, error) {
		return getMemory(d.defaults, args[0]), nil
	}},
	"set_device_pinned_mem_limit": {"PID DEVICE SIZE", onServer(func(_ *Daemon, s *server, args []string) (string, error) {
		return setMemory(&s.limits, args)
	})},
	"get_device_pinned_mem_limit": {"PID DEVICE", onServer(func(_ *Daemon, s *server, args []string) (string, error) {
		return getMemory(s.limits, args[0]), nil
	})},
}

// onServer runs a command on the server whose PID is the first argument.
func onServer(do func(*Daemon, *server, []string) (string, error)) func(*Daemon, []string) (string, error) {
	return func(d *Daemon, args []string) (string, error) {
		pid, err := strconv.Atoi(args[0])
		if err != nil || d.server == nil || d.server.pid != pid {
			return "", fmt.Errorf("Server %s not found", args[0]) //nolint:staticcheck // it is output
		}
		return do(d, d.server, args[1:])
	}
}

func startServer(d *Daemon, args []string) (string, error) {
	uid, err := strconv.Atoi(args[1])
	if args[0] != "-uid" || err != nil || uid < 0 {
		return "", fmt.Errorf("Usage: start_server -uid UID") //nolint:staticcheck // it is output
	}
	if d.server != nil {
		return "", fmt.Errorf("Server %d of user %d already exists", d.server.pid, d.server.uid) //nolint:staticcheck // it is output
	}
	return "", d.startServer(uid)
}

func getServerList(d *Daemon, _ []string) (string, error) {
	if d.server == nil {
		return "", nil
	}
	return fmt.Sprintln(d.server.pid), nil
}

func terminateClient(d *Daemon, s *server, args []string) (string, error) {
	pid, err := strconv.Atoi(args[0])
	c := s.byPID(pid)
	if err != nil || c == nil {
		return "", fmt.Errorf("Client %s not found", args[0]) //nolint:staticcheck // it is output
	}
	d.end(fail(errClientTerminated, "terminated by command"), c)
	return "0\n", nil // CUDA_SUCCESS
}

func setPercentage(l *Limits, arg string) (string, error) {
	p, err := parsePercentage(arg)
	if err != nil {
		return "", err
	}
	l.ActiveThreadPercentage = p
	return getPercentage(*l), nil
}

func getPercentage(l Limits) string { return fmt.Sprintf("%.1f\n", l.ActiveThreadPercentage) }

func setMemory(l *Limits, args []string) (string, error) {
	bytes, err := parseSize(args[1])
	if err != nil {
		return "", err
	}
	l.setMemory(args[0], bytes)
	return "", nil
}

func getMemory(l Limits, device string) string {
	bytes, ok := l.memory(device)
	if !ok {
		return "Memory limit is not set\n"
	}
	return formatSize(bytes) + "\n"
}
