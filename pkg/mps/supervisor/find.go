// SPDX-License-Identifier: Apache-2.0

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

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
)

// logVariable marks the processes of a daemon: servers inherit it from the daemon, and
// clients have another value or none.
const logVariable = "CUDA_MPS_LOG_DIRECTORY="

// devicesVariable lists the devices of a daemon's clients.
const devicesVariable = "CUDA_VISIBLE_DEVICES="

// serverProgram is the program that a daemon runs for its clients.
const serverProgram = "nvidia-cuda-mps-server"

// programComm is the name of both programs' processes in the kernel, which keeps 15 bytes
// of a name.
const programComm = "nvidia-cuda-mps"

// findProcesses returns the candidates among the processes of a daemon and its servers. The
// caller unfollows them.
func (o *Options) findProcesses(logDir string, isCandidate func(pid int) bool) ([]*process, error) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	belongs := func(pid int) bool { return isCandidate(pid) && belongsTo(pid, own, logDir) }
	var found []*process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !belongs(pid) {
			continue
		}
		p, err := o.follow(pid, nil)
		if errors.Is(err, unix.ESRCH) {
			continue // it has ended since
		}
		if err != nil {
			for _, p := range found {
				p.stopFollowing()
			}
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		if !p.matches(belongs) {
			p.stopFollowing()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// belongsTo reports whether a process is the daemon with the log directory or one of its
// servers. own is the PID namespace of this process, which daemons and servers share:
// processes of a container can have any name and environment. The servers run as the user
// of their client. The variable alone does not prove it: a shell may have exported it.
//
// The checks go from the cheapest to the environment, the longest read: a node can have
// thousands of other processes.
func belongsTo(pid int, own, logDir string) bool {
	return hasNamespace(pid, own) && runsMPS(pid) && hasVariable(pid, logVariable+logDir)
}

// hasNamespace reports whether a process has a PID namespace.
func hasNamespace(pid int, namespace string) bool {
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && its == namespace
}

// hasVariable reports whether a process was started with the variable "NAME=value".
func hasVariable(pid int, want string) bool {
	return slices.Contains(words(pid, "environ"), want)
}

// runsMPS reports whether a process runs a program of MPS. It checks the name and, for
// scripts and their children, the words of the command line.
func runsMPS(pid int) bool {
	comm, err := readProcess(pid, "comm")
	if err == nil && string(bytes.TrimSpace(comm)) == programComm {
		return true
	}
	return slices.ContainsFunc(words(pid, "cmdline"), func(word string) bool {
		name := filepath.Base(word)
		return name == program || name == serverProgram
	})
}

// words returns the words of a file of a process that zero bytes separate. It returns none
// if the process has ended or belongs to another user.
func words(pid int, file string) []string {
	data, err := readProcess(pid, file)
	if err != nil {
		return nil
	}
	return strings.Split(string(data), "\x00")
}

func readProcess(pid int, name string) ([]byte, error) {
	return file.Read(fmt.Sprintf("/proc/%d/%s", pid, name))
}

// isOwn reports whether a process belongs to the user of this process and did at its
// start: a program that gains rights at its start, such as su, has another real user.
func isOwn(pid int) bool {
	status, err := readProcess(pid, "status")
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

// leadsSession reports whether a process leads its session.
func leadsSession(pid int) bool {
	session, err := unix.Getsid(pid)
	return err == nil && session == pid
}

// findDaemon returns the control daemon of a log directory, or nil if there is none.
// The daemon leads its session, which excludes most processes of a node without any read.
func (o *Options) findDaemon(logDir string) (*process, error) {
	found, err := o.findProcesses(logDir, leadsSession)
	if err != nil {
		return nil, err
	}
	var daemon *process
	for _, p := range found {
		if daemon == nil && p.matches(isOwn) {
			daemon = p
			continue
		}
		p.stopFollowing()
	}
	return daemon, nil
}

// killProcesses kills a daemon and its servers, also those of an earlier supervisor.
func (o *Options) killProcesses(ctx context.Context, logDir string) error {
	found, err := o.findProcesses(logDir, func(int) bool { return true })
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range found {
		errs = append(errs, p.kill(ctx))
		p.stopFollowing()
	}
	return errors.Join(errs...)
}
