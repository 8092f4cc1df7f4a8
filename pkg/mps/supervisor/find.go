package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// logVariable marks the processes of a daemon: servers inherit it from the
// daemon, and clients have no such path.
const logVariable = "CUDA_MPS_LOG_DIRECTORY="

// devicesVariable says which devices a daemon's clients see.
const devicesVariable = "CUDA_VISIBLE_DEVICES="

// serverProgram is what a daemon runs for its clients.
const serverProgram = "nvidia-cuda-mps-server"

// programComm is what the kernel calls the processes of both programs: it keeps
// 15 bytes of a name.
const programComm = "nvidia-cuda-mps"

// findProcesses finds a daemon and its servers. The caller lets go of them.
func (o *Options) findProcesses(logDir string) ([]*process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []*process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !belongsTo(pid, logDir) {
			continue
		}
		p, err := o.follow(pid, nil)
		if errors.Is(err, unix.ESRCH) {
			continue // it has ended since
		}
		if err != nil {
			for _, p := range found {
				p.letGo()
			}
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if !p.is(func(pid int) bool { return belongsTo(pid, logDir) }) {
			p.letGo()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// belongsTo reports whether a process is a daemon with this log directory or a
// server of it, whose user is its client's. The variable alone does not tell: a
// shell may have exported it.
func belongsTo(pid int, logDir string) bool {
	return sameProcesses(pid) && hasVariable(pid, logVariable+logDir) && runsMPS(pid)
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

// hasVariable reports whether a process was started with "NAME=value".
func hasVariable(pid int, want string) bool {
	return slices.Contains(words(fmt.Sprintf("/proc/%d/environ", pid)), want)
}

// runsMPS reports whether a process is one of MPS' programs by its name or, as a
// script and what it runs are, by a word of its command line.
func runsMPS(pid int) bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err == nil && string(bytes.TrimSpace(comm)) == programComm {
		return true
	}
	return slices.ContainsFunc(words(fmt.Sprintf("/proc/%d/cmdline", pid)), func(word string) bool {
		name := filepath.Base(word)
		return name == program || name == serverProgram
	})
}

// words are those of a file of /proc that zero bytes end; none of a process that
// has ended or is another user's.
func words(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

// isOwn reports whether a process is this one's user's, and was so when its
// program began: a program that gains rights as it starts, such as su, has
// another real user.
func isOwn(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			own := strconv.Itoa(os.Geteuid())
			return !slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != own })
		}
	}
	return false
}

// leadsSession reports whether a session was started with a process.
func leadsSession(pid int) bool {
	session, err := unix.Getsid(pid)
	return err == nil && session == pid
}

// findDaemon finds the control daemon of a log directory, which leads the
// session that it was started in; nil if there is none.
func (o *Options) findDaemon(logDir string) (*process, error) {
	found, err := o.findProcesses(logDir)
	if err != nil {
		return nil, err
	}
	var daemon *process
	for _, p := range found {
		if daemon == nil && p.is(leadsSession) && p.is(isOwn) {
			daemon = p
			continue
		}
		p.letGo()
	}
	return daemon, nil
}

// killProcesses ends a daemon and its servers at once, wherever they come from.
func (o *Options) killProcesses(ctx context.Context, logDir string) error {
	found, err := o.findProcesses(logDir)
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
