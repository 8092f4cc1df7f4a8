// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kubeletSysctls are the kernel settings that a starting kubelet overwrites for the
// whole machine. Source: setupKernelTunables in pkg/kubelet/cm.
var kubeletSysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// savedSysctls is what the file of [SaveSysctls] holds.
type savedSysctls struct {
	BootID string            `json:"bootID"`
	Values map[string]string `json:"values"`
}

// SaveSysctls keeps the machine's own values of what a kubelet overwrites. It
// changes nothing where they are kept already: another cluster was first, and
// the values of now may be its kubelet's.
func SaveSysctls(file string) error {
	boot, err := readSysctl("kernel/random/boot_id")
	if err != nil {
		return err
	}
	if saved, err := readSaved(file); err == nil && saved.BootID == boot {
		return nil
	}
	saved := savedSysctls{BootID: boot, Values: map[string]string{}}
	for _, name := range kubeletSysctls {
		if saved.Values[name], err = readSysctl(name); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// RestoreSysctls restores the kept values, unless the machine has rebooted since, and
// removes the file. It succeeds if there are none.
func RestoreSysctls(file string) error {
	saved, err := readSaved(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	boot, err := readSysctl("kernel/random/boot_id")
	if err != nil {
		return err
	}
	if boot == saved.BootID {
		for _, name := range kubeletSysctls {
			if err := os.WriteFile(sysctlPath(name), []byte(saved.Values[name]), 0o644); err != nil {
				return fmt.Errorf("restore kernel setting: %w", err)
			}
		}
	}
	return os.Remove(file)
}

func readSaved(file string) (savedSysctls, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return savedSysctls{}, fmt.Errorf("kept kernel settings: %w", err)
	}
	var saved savedSysctls
	if err := json.Unmarshal(data, &saved); err != nil {
		return savedSysctls{}, fmt.Errorf("kept kernel settings: %s: %w", file, err)
	}
	return saved, nil
}

func sysctlPath(name string) string { return filepath.Join("/proc/sys", name) }

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(sysctlPath(name))
	if err != nil {
		return "", fmt.Errorf("kernel setting: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
