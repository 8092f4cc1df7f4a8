package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// hostShm is where programs look for shared memory.
const hostShm = "/dev/shm"

// folders are where a daemon lives. A server has the user of its client, so
// every folder on the way to the pipes can be passed by everybody, and none
// but the pipes' be listed.
type folders struct {
	dir  string // of all that goes with the daemon
	pipe string // CUDA_MPS_PIPE_DIRECTORY
	shm  string // its /dev/shm; empty for the host's
	log  string // CUDA_MPS_LOG_DIRECTORY
}

// runMode is that of folders on the way to the pipes.
const runMode = 0o711

// daemons is the folder with those of the daemons.
func (o *Options) daemons() string { return filepath.Join(o.RunDir, "daemons") }

func (o *Options) folders(name string) folders {
	dir := filepath.Join(o.daemons(), name)
	f := folders{dir: dir, pipe: filepath.Join(dir, "pipe"), shm: filepath.Join(dir, "shm"), log: filepath.Join(o.LogDir, name)}
	if o.HostShm {
		f.shm = ""
	}
	return f
}

// longestSocket is how long the path of a socket can be.
const longestSocket = 107

// check refuses folders whose sockets nobody could open.
func (f folders) check() error {
	if path := filepath.Join(f.pipe, "control_privileged"); len(path) > longestSocket {
		return fmt.Errorf("%s: %w: the path of a socket can have %d characters: give the supervisor a shorter --run-dir", path, gpu.ErrInvalid, longestSocket)
	}
	return nil
}

// clients is what they need of the folders.
func (f folders) clients() gpu.MPSDirs {
	if f.shm == "" {
		return gpu.MPSDirs{Pipe: f.pipe, Shm: hostShm}
	}
	return gpu.MPSDirs{Pipe: f.pipe, Shm: f.shm}
}

// mounts are a daemon's. It writes files as root among its pipes, and a container
// that runs as root can put a link to a file of the node there.
func (f folders) mounts(namespace string) mounts {
	m := f.commandMounts(namespace)
	m.shm = f.shm
	return m
}

// commandMounts are those of a command to the daemon: a link in the place of its
// socket could lead to another daemon's.
func (f folders) commandMounts(namespace string) mounts {
	if f.shm == "" {
		return mounts{namespace: namespace}
	}
	return mounts{namespace: namespace, noLinks: f.pipe}
}

func (f folders) socket() string { return filepath.Join(f.pipe, "control") }
func (f folders) record() string { return filepath.Join(f.dir, "daemon.json") }
func (f folders) output() string { return filepath.Join(f.log, "output.log") }

// make makes the folders. Those that are there stay: containers have them mounted.
func (f folders) make() error {
	if err := makeDir(f.dir, runMode); err != nil {
		return err
	}
	if err := makeDir(f.pipe, 0o755); err != nil {
		return err
	}
	if err := makeDir(f.log, 0o700); err != nil {
		return err
	}
	if f.shm != "" {
		return makeDir(f.shm, 0o777|fs.ModeSticky)
	}
	return nil
}

// remove leaves the logs. The record goes first: a folder without one is what a
// stop has left that was cut short.
func (f folders) remove(ctx context.Context) error {
	if err := os.Remove(f.record()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := emptyFolder(ctx, f.dir)
	if err == nil {
		err = os.Remove(f.dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func makeDir(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask is
}

// record is what is known of a daemon besides its process: what it is to be.
// Fields are only ever added.
type record struct {
	Daemon gpu.MPSDaemon `json:"daemon"`
	// Had has the ceilings that it may have besides.
	Had      gpu.MPSDaemon `json:"had"`
	Restarts int           `json:"restarts"`
}

// write replaces the record. It need not survive a crash of the machine, with
// which the daemon ends.
func (r record) write(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func readRecord(path, name string) (record, error) {
	var r record
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w: %w", path, gpu.ErrCorrupt, err)
	}
	if r.Daemon.Name != name {
		return r, fmt.Errorf("%s: %w: it is of %q", path, gpu.ErrCorrupt, r.Daemon.Name)
	}
	if err := validate(r.Daemon); err != nil {
		return r, fmt.Errorf("%s: %w: %w", path, gpu.ErrCorrupt, err)
	}
	return r, nil
}
