// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// device is a node under /dev.
type device struct {
	Path string `json:"path"`
	// Type is "char", "block" or "other".
	Type string `json:"type"`
	// Open is the result of opening it for reading: "ok" or the name of the errno.
	// EPERM means that the device cgroup refused. ENXIO and ENODEV mean that the
	// cgroup allowed it and the node has no driver.
	Open string `json:"open"`
}

// readDevices returns the nodes /dev/nvidia* and the nodes in directories with such
// names, such as nvidia-caps.
func readDevices(r root) ([]device, error) {
	devices := []device{}
	err := filepath.WalkDir(r.path("dev"), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(r.outside(path), "/dev")
		ours := strings.HasPrefix(name, "/nvidia")
		if entry.IsDir() {
			if name != "" && !ours {
				return fs.SkipDir
			}
			return nil
		}
		if !ours {
			return nil
		}
		d, err := lookAtDevice(r, path)
		if err != nil {
			return err
		}
		devices = append(devices, d)
		return nil
	})
	slices.SortFunc(devices, func(a, b device) int { return strings.Compare(a.Path, b.Path) })
	return devices, err
}

func lookAtDevice(r root, path string) (device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return device{}, err
	}
	d := device{Path: r.outside(path), Type: "other", Open: tryOpen(path)}
	switch {
	case info.Mode()&fs.ModeCharDevice != 0:
		d.Type = "char"
	case info.Mode()&fs.ModeDevice != 0:
		d.Type = "block"
	}
	return d, nil
}

func tryOpen(path string) string {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		file.Close() //nolint:errcheck // nothing was written
		return "ok"
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	switch errno {
	case syscall.EPERM:
		return "EPERM"
	case syscall.EACCES:
		return "EACCES"
	case syscall.ENXIO:
		return "ENXIO"
	case syscall.ENODEV:
		return "ENODEV"
	case syscall.EIO:
		return "EIO"
	case syscall.EBUSY:
		return "EBUSY"
	default:
		return fmt.Sprintf("errno %d (%s)", int(errno), errno.Error())
	}
}
