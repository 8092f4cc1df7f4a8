// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// hostShm is the folder of shared memory.
const hostShm = "/dev/shm"

// folders are the folders of a daemon. A server has the user of its client, so all users
// can pass the folders on the way to the pipes, and list only the pipe folder.
type folders struct {
	dir  string // holds all files of the daemon but its logs
	pipe string // CUDA_MPS_PIPE_DIRECTORY
	shm  string // its /dev/shm; empty for the one of the host
	log  string // CUDA_MPS_LOG_DIRECTORY
}

// runMode is the mode of folders on the way to the pipes.
const runMode = 0o711

// daemons returns the folder that holds a folder for each daemon.
func (o *Options) daemons() string { return filepath.Join(o.RunDir, "daemons") }

func (o *Options) folders(name string) folders {
	dir := filepath.Join(o.daemons(), name)
	f := folders{dir: dir, pipe: filepath.Join(dir, "pipe"), shm: filepath.Join(dir, "shm"), log: filepath.Join(o.LogDir, name)}
	if o.HostShm {
		f.shm = ""
	}
	return f
}

// longestSocket is the limit for the length of a socket's path.
const longestSocket = 107

// check returns an error if the paths of the sockets would be too long.
func (f folders) check(d gpu.MPSDaemon) error {
	path := filepath.Join(f.pipe, "control_privileged")
	for _, n := range d.Namespaces {
		if socket := filepath.Join(f.namespace(n.Name), "control"); len(socket) > len(path) {
			path = socket
		}
	}
	if len(path) > longestSocket {
		return fmt.Errorf("%s: %w: the path of a socket can have %d characters: give the supervisor a shorter --run-dir", path, gpu.ErrInvalid, longestSocket)
	}
	return nil
}

// clients returns the folders that clients of a daemon need.
func (f folders) clients(d gpu.MPSDaemon) gpu.MPSDirs {
	dirs := gpu.MPSDirs{Pipe: f.pipe, Shm: f.shm}
	if d.HasNamespaces() {
		dirs.Pipe = f.server()
	}
	if f.shm == "" {
		dirs.Shm = hostShm
	}
	return dirs
}

// mounts returns the mounts of a daemon. It writes files into its pipe folder as root, in
// which a container that runs as root can create a link to a file of the node.
func (f folders) mounts(namespace string) mounts {
	m := f.commandMounts(namespace)
	m.shm = f.shm
	return m
}

// commandMounts returns the mounts of a command to the daemon: a link in the place of its
// socket could point to the socket of another daemon.
func (f folders) commandMounts(namespace string) mounts {
	if f.shm == "" {
		return mounts{namespace: namespace}
	}
	return mounts{namespace: namespace, noLinks: f.pipe}
}

func (f folders) socket() string { return filepath.Join(f.pipe, "control") }
func (f folders) record() string { return filepath.Join(f.dir, "daemon.json") }
func (f folders) output() string { return filepath.Join(f.log, "output.log") }

// server returns the folder with the sockets of a daemon's namespaces, and namespace the
// one of a namespace.
func (f folders) server() string               { return filepath.Join(f.pipe, serverName) }
func (f folders) namespace(name string) string { return filepath.Join(f.server(), name) }

func (f folders) configuration() string { return filepath.Join(f.dir, "mps.toml") }
func (f folders) serverLog() string     { return filepath.Join(f.log, serverName, "server.log") }

// make creates missing folders. Existing ones stay: containers have them mounted.
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

// remove removes all folders but the logs. It removes the record first: a folder without
// a record is left by a stop that was interrupted.
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
	return os.Chmod(path, mode) // independent of the umask
}

// record holds the desired settings of a daemon. Fields are added and never removed.
type record struct {
	Daemon gpu.MPSDaemon `json:"daemon"`
	// Had holds the highest ceilings that were ever requested.
	Had      gpu.MPSDaemon `json:"had"`
	Restarts int           `json:"restarts"`
	// Interrupted is when clients last lost their server.
	Interrupted time.Time `json:"interrupted,omitzero"`
}

// write replaces the record. It does not sync the file: the daemon does not survive a
// crash of the machine either.
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

// errNoFolder is the error if a folder is missing that containers mount: none starts without it.
var errNoFolder = errors.New("a folder of its clients is missing")

// checkFolders returns an error if a folder of its clients is missing.
func (d *daemon) checkFolders() error {
	folders := []string{d.folders.shm}
	for _, n := range d.snapshot().Daemon.Namespaces {
		folders = append(folders, d.folders.namespace(n.Name))
	}
	return d.options.inNamespace(func() error {
		for _, path := range folders {
			if _, err := os.Lstat(path); path != "" && errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: %w: %s", gpu.ErrNotReady, errNoFolder, path)
			}
		}
		return nil
	})
}
