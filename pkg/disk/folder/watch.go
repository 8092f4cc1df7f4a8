// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Watch lists the entries of a folder that were written, replaced or removed. The kernel
// (inotify) queues each change within the call that makes it, for all processes. So
// [Watch.Changed] misses no change that was complete when it was called, and has nothing to
// wait for.
//
// Its methods must not be called at the same time.
type Watch struct {
	path   string
	folder fs.FileInfo
	queue  *os.File
	events []byte
}

// changes are the events of entries that are moved to or from the folder, written or removed.
const changes = unix.IN_MOVE | unix.IN_MODIFY | unix.IN_DELETE

// NewWatch watches a folder. The user of this process can have 128 watches by default;
// then the error wraps [unix.EMFILE].
func NewWatch(path string) (*Watch, error) {
	folder, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("watch a folder: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch folder %s: %w", path, err)
	}
	w := &Watch{path: path, folder: folder, queue: os.NewFile(uintptr(fd), "changes of "+path), events: make([]byte, 4<<10)}
	// Only now: the runtime polls files that do not block when they are made, and would
	// wake up with each change.
	if err = unix.SetNonblock(fd, true); err == nil {
		_, err = unix.InotifyAddWatch(fd, path, changes|unix.IN_ONLYDIR)
	}
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch folder %s: %w", path, err), w.Close())
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error { return w.queue.Close() }

// Changed returns the names of the entries that were written, replaced or removed. These are
// all changes since the watch or the last call. A name can be there more than once. After an
// error anything may have changed, and the caller needs a new watch: there were too many
// changes, or the folder was replaced.
func (w *Watch) Changed() ([]string, error) {
	names, err := w.queued()
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return nil, fmt.Errorf("watch folder %s: %w", w.path, err)
	}
	return names, nil
}

// queued returns the names in the queued events.
func (w *Watch) queued() ([]string, error) {
	var names []string
	for {
		events, err := w.read()
		if err != nil || len(events) == 0 {
			return names, err
		}
		if names, err = appendNames(names, events); err != nil {
			return nil, err
		}
	}
}

// check returns an error unless the watched folder is the one at its path.
func (w *Watch) check() error {
	there, err := os.Stat(w.path)
	if err == nil && !os.SameFile(w.folder, there) {
		err = errReplaced
	}
	return err
}

// read returns the queued events, none if there are none. It does not wait.
func (w *Watch) read() ([]byte, error) {
	raw, err := w.queue.SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, readErr = unix.Read(int(fd), w.events)
		return !errors.Is(readErr, unix.EINTR)
	})
	if errors.Is(readErr, unix.EAGAIN) {
		return nil, nil
	}
	if err := errors.Join(err, readErr); err != nil {
		return nil, err
	}
	return w.events[:n], nil
}

// errTooMany means that the kernel has dropped changes.
var errTooMany = errors.New("too many changes")

// appendNames appends the names in inotify events. See inotify(7) for their form.
func appendNames(names []string, events []byte) ([]string, error) {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		length := int(binary.NativeEndian.Uint32(events[12:]))
		name := events[unix.SizeofInotifyEvent:][:length]
		events = events[unix.SizeofInotifyEvent+length:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			return nil, errTooMany
		case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
			return nil, errReplaced
		case length > 0: // 0 for the folder itself
			names = append(names, string(bytes.TrimRight(name, "\x00")))
		}
	}
	return names, nil
}
