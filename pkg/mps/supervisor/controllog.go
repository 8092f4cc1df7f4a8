// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// controlLog is the state of the clients of a daemon with MPS protocol 2, from the daemon's log.
// No command lists the clients that wait, and reading the log adds nothing to it.
type controlLog struct {
	// offset is the number of bytes that were read.
	offset int64
	// server is the PID of the latest server, and user its user.
	server, user int
	// seen is the server that ran at the last check, and seenUser its user.
	seen, seenUser int
	// waiting has the users of the clients that had to wait, by PID.
	waiting map[int]int
}

const (
	// mostRead is the limit for one read of a log in bytes.
	mostRead = 1 << 20
	// mostWaiting bounds the clients that wait.
	mostWaiting = 256
)

// Lines of the daemon's log. It lists a client of another user as one whose server is not ready.
var (
	serverLine = regexp.MustCompile(`Starting new server (\d{1,9}) for user (\d{1,10})`)
	waitLine   = regexp.MustCompile(`NEW CLIENT (\d{1,9}) from user (\d{1,10}): Server is not ready`)
)

// read reads what the daemon has added to its log. It starts again if the log was emptied.
func (l *controlLog) read(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < l.offset {
		l.offset = 0
	}
	l.offset = max(l.offset, info.Size()-mostRead)
	text := make([]byte, info.Size()-l.offset)
	n, err := file.ReadAt(text, l.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	l.offset += int64(len(text))
	for line := range bytes.Lines(text) {
		l.add(line)
	}
	return nil
}

func (l *controlLog) add(line []byte) {
	if server, user, ok := numbers(serverLine, line); ok {
		l.server, l.user = server, user
		for pid, of := range l.waiting {
			if of == user {
				delete(l.waiting, pid)
			}
		}
	}
	// A process outside the daemon's PID namespace has the number 0.
	if pid, user, ok := numbers(waitLine, line); ok && pid != 0 && len(l.waiting) < mostWaiting {
		if l.waiting == nil {
			l.waiting = map[int]int{}
		}
		l.waiting[pid] = user
	}
}

func numbers(pattern *regexp.Regexp, line []byte) (first, second int, ok bool) {
	m := pattern.FindSubmatch(line)
	if m == nil {
		return 0, 0, false
	}
	first, err := strconv.Atoi(string(m[1]))
	second, other := strconv.Atoi(string(m[2]))
	return first, second, err == nil && other == nil
}

// waits returns the clients of other users than the server's that wait and live, ordered by PID.
func (l *controlLog) waits() []gpu.MPSWaiting {
	var all []gpu.MPSWaiting
	for pid, user := range l.waiting {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(l.waiting, pid)
		} else if l.server != 0 && user != l.user {
			all = append(all, gpu.MPSWaiting{PID: pid, UID: user})
		}
	}
	slices.SortFunc(all, func(a, b gpu.MPSWaiting) int { return cmp.Compare(a.PID, b.PID) })
	return all
}

// hasLostServer reports whether the server of the last check has ended, and was not to: it ends
// by itself if another user's turn comes.
func (l *controlLog) hasLostServer(waiting []gpu.MPSWaiting) bool {
	lost := l.seen != 0 && !runsMPS(l.seen) && l.user == l.seenUser && len(waiting) == 0
	l.seen, l.seenUser = 0, 0
	if l.server != 0 && runsMPS(l.server) {
		l.seen, l.seenUser = l.server, l.user
	}
	return lost
}

// followLog updates the clients that wait, and whether clients have lost their server. A daemon
// in multi-user mode has one server for all users, so no client waits for a turn.
func (d *daemon) followLog() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.process.alive() || d.status.Daemon.HasNamespaces() {
		return nil
	}
	if err := d.log.read(filepath.Join(d.folders.log, "control.log")); err != nil {
		return err
	}
	if slices.Contains(words(d.process.pid, "cmdline"), multiUserFlag) {
		clear(d.log.waiting)
	}
	d.status.Waiting = d.log.waits()
	if !d.log.hasLostServer(d.status.Waiting) {
		return nil
	}
	d.noteInterruption()
	return d.writeRecord()
}

// noteInterruption records that the daemon's clients have lost their server now. The caller holds
// mu.
func (d *daemon) noteInterruption() {
	d.status.Interrupted = d.options.Clock.Now().UTC().Truncate(time.Second)
}

// writeRecord writes the settings and what has happened. The caller holds mu.
func (d *daemon) writeRecord() error {
	return record{Daemon: d.status.Daemon, Had: d.had, Restarts: d.status.Restarts, Interrupted: d.status.Interrupted}.write(d.folders.record())
}
