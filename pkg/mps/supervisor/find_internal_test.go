// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A daemon or server that is not found keeps its clients beyond its claims, and a second
// daemon is started for its GPU.
func TestProcessesOfADaemonAreFound(t *testing.T) {
	dir := t.TempDir()
	logDir := filepath.Join(dir, "log")
	named := filepath.Join(dir, serverProgram)
	must(t, os.Symlink("/bin/sh", named))
	// More than one read of the kernel returns.
	long := "LONG=" + strings.Repeat("x", 100_000)
	mine := logVariable + logDir
	for name, tc := range map[string]struct {
		command     []string
		environment []string
		leads       bool // its session
		want        bool
	}{
		"by its name":                             {[]string{named, "-c", "read _"}, []string{mine}, true, true},
		"by a word of its command line":           {[]string{"/bin/sh", "-c", "read _", "/usr/bin/" + program}, []string{mine}, true, true},
		"after a long command line":               {[]string{"/bin/sh", "-c", "read _", long, program}, []string{mine}, true, true},
		"after a long environment":                {[]string{named, "-c", "read _"}, []string{long, mine}, true, true},
		"a server, in the session of its daemon":  {[]string{named, "-c", "read _"}, []string{mine}, false, true},
		"of another program":                      {[]string{"/bin/sh", "-c", "read _"}, []string{mine}, true, false},
		"of another daemon":                       {[]string{named, "-c", "read _"}, []string{mine + "-2"}, true, false},
		"with the variable as a part of another":  {[]string{named, "-c", "read _"}, []string{"X=" + mine}, true, false},
		"with a name that only contains the word": {[]string{"/bin/sh", "-c", "read _", program + ".log"}, []string{mine}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), tc.command[0], tc.command[1:]...)
			cmd.Env, cmd.SysProcAttr = tc.environment, &syscall.SysProcAttr{Setsid: tc.leads}
			stdin, err := cmd.StdinPipe()
			must(t, err)
			must(t, cmd.Start())
			defer func() { _ = stdin.Close(); _ = cmd.Wait() }()
			o := Options{}.withDefaults()
			found, err := o.findProcesses(logDir, func(int) bool { return true })
			must(t, err)
			var pids []int
			for _, p := range found {
				pids = append(pids, p.pid)
				p.stopFollowing()
			}
			if slices.Contains(pids, cmd.Process.Pid) != tc.want || len(pids) > 1 {
				t.Errorf("found %v, want process %d: %t", pids, cmd.Process.Pid, tc.want)
			}
			daemon, err := o.findDaemon(logDir)
			if isDaemon := daemon != nil; err != nil || isDaemon != (tc.want && tc.leads) {
				t.Errorf("it is the daemon: %t (%v), want %t", isDaemon, err, tc.want && tc.leads)
			}
			daemon.stopFollowing()
		})
	}
}
