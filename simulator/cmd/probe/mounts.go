// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// mount is a mount point of the container.
type mount struct {
	Path string `json:"path"`
	// Source is the path inside the mounted file system.
	Source   string `json:"source"`
	Type     string `json:"type"`
	ReadOnly bool   `json:"readOnly"`
}

func lookAtMounts(r root) ([]mount, error) {
	data, err := os.ReadFile(r.path("proc/self/mountinfo"))
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data))
}

// parseMounts reads proc_pid_mountinfo(5) and keeps what concerns GPUs.
func parseMounts(text string) ([]mount, error) {
	mounts := []mount{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		separator := slices.Index(fields, "-")
		if separator < 6 || len(fields) < separator+2 {
			return nil, fmt.Errorf("line %q is malformed", strings.TrimSpace(line))
		}
		path := fields[4]
		if !ofInterest(path) {
			continue
		}
		mounts = append(mounts, mount{
			Path:     path,
			Source:   fields[3],
			Type:     fields[separator+1],
			ReadOnly: slices.Contains(strings.Split(fields[5], ","), "ro"),
		})
	}
	slices.SortFunc(mounts, func(a, b mount) int { return strings.Compare(a.Path, b.Path) })
	return mounts, nil
}

func ofInterest(path string) bool {
	for _, part := range []string{"nvidia", "libcuda", "cuda", "/mps", "dra-device-attributes"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return false
}
