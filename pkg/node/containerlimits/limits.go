// SPDX-License-Identifier: Apache-2.0

// Package containerlimits keeps the memory limits that hooks set on containers: a folder
// for each CDI device whose containers are limited, and in it a file for each container.
// The agent makes and removes the folders; the hooks write the files, also while the agent
// is away.
//
// Out of scope: setting a limit, which package nvml does.
package containerlimits

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
)

// Limit is the memory limit of a container on one GPU.
type Limit struct {
	// Cgroup is the folder of the container's cgroup. ID is the cgroup at that path
	// when the limit was set.
	Cgroup string    `json:"cgroup"`
	ID     cgroup.ID `json:"id"`
	// GPU is the PCI address.
	GPU string `json:"gpu"`
	// Bytes is the memory that the container has by this device.
	Bytes uint64 `json:"bytes"`
}

// Folder is the path of the folder for all devices. Several processes may use it at the
// same time.
type Folder string

// maxName is the length of the longest name of a CDI device. The names are the names of
// folders here.
const maxName = 253

// nameForm is the form of a name. It does not count: each count is a copy of the
// expression, and the hook compiles it for each container.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func isName(device string) bool { return len(device) <= maxName && nameForm.MatchString(device) }

// Open makes the folder of a device, which admits containers. It succeeds if the folder
// exists.
func (f Folder) Open(device string) error {
	path, err := f.deviceFolder(device)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return fmt.Errorf("memory limits of %s: %w", device, err)
	}
	return nil
}

// Close removes the folder of a device with its files: the device admits no container
// any more. The limits of its containers stay as long as their cgroups. Close succeeds if
// the folder does not exist.
func (f Folder) Close(device string) error {
	path, err := f.deviceFolder(device)
	if err != nil {
		return err
	}
	return f.locked(func() error { return os.RemoveAll(path) })
}

// Devices returns the devices that have a folder, in ascending order.
func (f Folder) Devices() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("memory limits: %w", err)
	}
	var devices []string
	for _, e := range entries {
		if e.IsDir() {
			devices = append(devices, e.Name())
		}
	}
	return devices, nil
}

// Admitted returns the limits of the containers that a device has admitted. It may include
// containers that have ended, and needs no sight of their cgroups. The error wraps
// [gpu.ErrNotFound] if the device has no folder.
func (f Folder) Admitted(device string) ([]Limit, error) {
	path, err := f.deviceFolder(device)
	if err != nil {
		return nil, err
	}
	var all []Limit
	err = eachFile(path, func(_ string, l Limit) error {
		all = append(all, l)
		return nil
	})
	return all, err
}

// Containers returns the limits of the containers that use a device and have processes,
// also with an error: an unreadable file does not hide the other containers. The error
// wraps [gpu.ErrNotFound] if the device has no folder.
func (f Folder) Containers(device string) ([]Limit, error) {
	all, err := f.Admitted(device)
	return slices.DeleteFunc(all, func(l Limit) bool { return !l.IsUsed() }), err
}

// Admit notes that a container uses a device, and returns the limit that it needs on the
// GPU: the sum of the limits of all devices on that GPU that it uses. Admit may be called
// again for the same container.
//
// The error wraps [gpu.ErrNotFound] if the device has no folder, because its claim is not
// prepared, and [gpu.ErrInUse] if as many other containers as may use it at a time do so.
func (f Folder) Admit(device string, l Limit, most int) (bytes uint64, err error) {
	path, err := f.deviceFolder(device)
	if err != nil {
		return 0, err
	}
	err = f.locked(func() error {
		others := 0
		if err := eachFile(path, func(file string, other Limit) error {
			switch {
			case other.ID == l.ID:
			case other.IsUsed():
				others++
			default:
				return os.Remove(file)
			}
			return nil
		}); err != nil {
			return err
		}
		if others >= most {
			return fmt.Errorf("device %s: %w: its memory is for %d containers at a time, and %d others use it; wait until one of them has ended, or declare more containers in the ShareConfig", device, gpu.ErrInUse, most, others)
		}
		if err := write(filepath.Join(path, l.file()), l); err != nil {
			return err
		}
		bytes, err = f.sum(l)
		return err
	})
	return bytes, err
}

// Leave forgets that a container uses a device.
func (f Folder) Leave(device string, l Limit) error {
	path, err := f.deviceFolder(device)
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(path, l.file()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sum returns the memory that a container has of a GPU by all its devices. The caller
// holds the lock.
func (f Folder) sum(limit Limit) (bytes uint64, err error) {
	devices, err := f.Devices()
	if err != nil {
		return 0, err
	}
	for _, device := range devices {
		l, err := read(filepath.Join(string(f), device, limit.file()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		// A file of an earlier boot can have the number of the cgroup.
		if l.GPU == limit.GPU && l.Cgroup == limit.Cgroup {
			bytes += l.Bytes
		}
	}
	return bytes, nil
}

// deviceFolder returns the folder of a device. The error wraps [gpu.ErrInvalid] for a name that is
// not of a CDI device.
func (f Folder) deviceFolder(device string) (string, error) {
	if !isName(device) {
		return "", fmt.Errorf("device %q: %w name", device, gpu.ErrInvalid)
	}
	return filepath.Join(string(f), device), nil
}

// locked calls do while no other process changes files. Without the folder of all
// devices there is no file to change, and no lock.
func (f Folder) locked(do func() error) error {
	dir, err := os.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return do()
	}
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	// The lock ends with the file. It is held for a few changes of small files.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", f, err)
	}
	return do()
}

// IsUsed reports whether a process runs in the container. It is false for a container
// that has ended, also if another one has a cgroup at the same path now.
func (l Limit) IsUsed() bool {
	id, err := cgroup.Lookup(l.Cgroup)
	if err != nil || id != l.ID {
		return false
	}
	used, err := cgroup.HasProcesses(l.Cgroup)
	return used && err == nil
}

// file returns the name of the container's files.
func (l Limit) file() string { return strconv.FormatUint(uint64(l.ID), 10) }

// eachFile calls do for every container in the folder of a device, also after errors. The
// error wraps [gpu.ErrNotFound] if the folder does not exist.
func eachFile(path string, do func(file string, l Limit) error) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("device %s: %w: its claim is not prepared", filepath.Base(path), gpu.ErrNotFound)
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if filepath.Ext(file) == temporary {
			continue
		}
		l, err := read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = do(file, l)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func read(file string) (l Limit, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("%s: %w: %w", file, gpu.ErrCorrupt, err)
	}
	return l, nil
}

// temporary is the suffix of a file that is being written. The holder of the lock is the
// only writer, so a later write replaces what a crash has left.
const temporary = ".new"

func write(file string, l Limit) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+temporary, file)
}
