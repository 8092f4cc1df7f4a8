// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceCgroups is where the hierarchy of the controller devices of version 1 is.
const deviceCgroups = "/sys/fs/cgroup/devices"

// rules are the lines of devices.list of a cgroup: what its processes may do with which
// device nodes, such as "c 195:0 rw" or "a *:* rwm".
type rules []string

// deviceRules returns the rules of a process' device cgroup. A container may create any
// node in its /dev, and only these rules keep it from opening one. They are "everything"
// if the process has no such cgroup.
func deviceRules(pid int) (rules, error) {
	everything := rules{"a *:* rwm"}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("device cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || !slices.Contains(strings.Split(fields[1], ","), "devices") {
			continue
		}
		list, err := os.ReadFile(filepath.Join(deviceCgroups, fields[2], "devices.list"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return everything, nil
		}
		if err != nil {
			return nil, fmt.Errorf("device cgroup of process %d: %w", pid, err)
		}
		return strings.Split(strings.TrimSpace(string(list)), "\n"), nil
	}
	return everything, nil
}

// canOpen reports whether the rules allow reading and writing a character device.
func (r rules) canOpen(major, minor int) bool {
	return slices.ContainsFunc(r, func(rule string) bool {
		fields := strings.Fields(rule)
		if len(fields) != 3 || fields[0] != "a" && fields[0] != "c" {
			return false
		}
		majors, minors, _ := strings.Cut(fields[1], ":")
		return (majors == "*" || majors == strconv.Itoa(major)) && (minors == "*" || minors == strconv.Itoa(minor)) &&
			strings.Contains(fields[2], "r") && strings.Contains(fields[2], "w")
	})
}
