// SPDX-License-Identifier: Apache-2.0

// Package process starts the daemons of a cluster so that they outlive the starting
// program. It later finds exactly these processes again by process ID, start time
// and boot, recorded in a file each.
//
// Out of scope: supervision. A daemon that ends is not restarted.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const maxTailLine = 300

// Spec is a daemon to start.
type Spec struct {
	Name string
	// Args begins with the absolute path of the program.
	Args []string
	// Env is the whole environment, as NAME=value.
	Env []string
	// Log receives standard output and error; it is appended to.
	Log string
}

// Record identifies a process that was started. A process ID alone can be
// reused; with start time and boot it cannot.
type Record struct {
	Spec
	PID int
	// StartTime is in clock ticks since boot (proc_pid_stat(5), field 22).
	StartTime uint64
	// BootID is /proc/sys/kernel/random/boot_id.
	BootID string
}

// Start starts a daemon in a new session and records it in dir/NAME.json.
func Start(dir string, spec Spec) (Record, error) {
	bootID, err := bootID()
	if err != nil {
		return Record{}, err
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Record{}, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer log.Close()                                   //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(spec.Args[0], spec.Args[1:]...) //nolint:noctx // it must outlive every context of ours
	cmd.Env, cmd.Stdout, cmd.Stderr = spec.Env, log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Record{}, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	record := Record{Spec: spec, PID: cmd.Process.Pid, BootID: bootID}
	stat, err := readStat(record.PID)
	if err == nil {
		record.StartTime = stat.startTime
		err = record.write(dir)
	}
	if err != nil {
		return Record{}, errors.Join(fmt.Errorf("start %s: %w", spec.Name, err), cmd.Process.Kill(), cmd.Wait())
	}
	// Reaps the daemon should it die before this program does, and ends with
	// either.
	go cmd.Wait() //nolint:errcheck // how it ended is in its log
	return record, nil
}

func (r Record) write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Name+".json"), append(data, '\n'), 0o600)
}

// Read reads the record of one daemon. The error wraps [fs.ErrNotExist] where
// it was never started.
func Read(dir, name string) (Record, error) {
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return Record{}, fmt.Errorf("process %s: %w", name, err)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("process %s: %w", name, err)
	}
	return r, nil
}

// List reads the records of all daemons, by name. A missing directory holds
// none.
func List(dir string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var records []Record
	for _, file := range files {
		r, err := Read(dir, strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// Alive reports whether that very process still runs.
func (r Record) Alive() bool {
	boot, err := bootID()
	if err != nil || boot != r.BootID {
		return false
	}
	stat, err := readStat(r.PID)
	return err == nil && stat.startTime == r.StartTime && stat.state != "Z" && stat.state != "X"
}

// Stop ends the process with SIGTERM, and kills it after grace. It succeeds if the
// process has ended already.
func (r Record) Stop(ctx context.Context, grace time.Duration) error {
	return r.end(ctx, []attempt{{unix.SIGTERM, grace}, {unix.SIGKILL, killWait}})
}

// Kill ends the process at once, as a crash does. It succeeds if the process has ended
// already.
func (r Record) Kill(ctx context.Context) error {
	return r.end(ctx, []attempt{{unix.SIGKILL, killWait}})
}

// killWait is how long the kernel may take to end a killed process.
const killWait = 10 * time.Second

type attempt struct {
	signal unix.Signal
	wait   time.Duration
}

func (r Record) end(ctx context.Context, attempts []attempt) error {
	// The descriptor pins the process, so the check after it holds for the
	// signals too.
	fd, err := unix.PidfdOpen(r.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL):
		// A thread of another process has the number by now: new kernels answer ENOENT,
		// old ones EINVAL.
		return nil
	case err != nil:
		return fmt.Errorf("stop %s (process %d): %w", r.Name, r.PID, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if !r.Alive() {
		return nil
	}
	for _, a := range attempts {
		if err := unix.PidfdSendSignal(fd, a.signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s (process %d): %w", r.Name, r.PID, err)
		}
		ended, err := waitFor(ctx, fd, a.wait)
		if err != nil {
			return fmt.Errorf("stop %s (process %d): %w", r.Name, r.PID, err)
		}
		if ended {
			return nil
		}
	}
	return fmt.Errorf("stop %s: process %d survived SIGKILL", r.Name, r.PID)
}

// waitFor waits until the process of a pidfd has ended. It checks ctx a few times a
// second.
func waitFor(ctx context.Context, fd int, limit time.Duration) (bool, error) {
	const slice = 200 * time.Millisecond
	for left := limit; left > 0; left -= slice {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(slice.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

type stat struct {
	state     string
	startTime uint64
}

func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(data))
}

// parseStat reads proc_pid_stat(5). The second field is the program's name in
// parentheses and may itself hold blanks and parentheses.
func parseStat(line string) (stat, error) {
	_, rest, _ := cutLast(line, ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("process state %q: too few fields", line)
	}
	s := stat{state: fields[0]}
	if _, err := fmt.Sscan(fields[19], &s.startTime); err != nil {
		return stat{}, fmt.Errorf("process state %q: start time: %w", line, err)
	}
	return s, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Tail returns the last lines of a daemon's log for an error message. It shortens long
// lines.
func Tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(no log)"
	}
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	for i, line := range all {
		if len(line) > maxTailLine {
			all[i] = line[:maxTailLine] + "..."
		}
	}
	return "  " + strings.Join(all, "\n  ")
}
