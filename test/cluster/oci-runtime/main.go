// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command oci-runtime starts containers of CRI-O on a machine without all rights of root.
//
// It removes rights that the machine lacks from the files of a container, and runs the OCI
// runtime, which its first argument names. containerd has settings for this or does it by
// itself; CRI-O has none.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: oci-runtime RUNTIME ARGS...")
		os.Exit(2)
	}
	args := os.Args[1:]
	for i, arg := range args[:len(args)-1] {
		var err error
		switch next := args[i+1]; arg {
		case "--bundle": // of "create"
			err = adapt(filepath.Join(next, "config.json"), machine.adaptContainer)
		case "--process": // of "exec"
			err = adapt(next, machine.adaptProcess)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "oci-runtime:", err)
			os.Exit(1)
		}
	}
	fmt.Fprintln(os.Stderr, "oci-runtime:", syscall.Exec(args[0], args, os.Environ()))
	os.Exit(1)
}

// adapt changes a file in JSON to the abilities of this machine.
func adapt(path string, change func(machine, map[string]any)) error {
	m, err := thisMachine()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var document map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a limit may need all 64 bits
	if err := decoder.Decode(&document); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	change(m, document)
	if data, err = json.Marshal(document); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o600)
}

// machine is what a container on it can have.
type machine struct {
	capabilities uint64
	oomScoreAdj  int
	hugetlb      bool
}

func thisMachine() (m machine, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return m, err
	}
	_, bounding, _ := strings.Cut(string(status), "\nCapBnd:")
	bounding, _, _ = strings.Cut(bounding, "\n")
	if m.capabilities, err = strconv.ParseUint(strings.TrimSpace(bounding), 16, 64); err != nil {
		return m, err
	}
	adj, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return m, err
	}
	if m.oomScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(adj))); err != nil {
		return m, err
	}
	// The kernel of a machine with cgroups of version 1 lists hugetlb although it is not mounted.
	for _, sign := range []string{"/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/hugetlb"} {
		_, err := os.Stat(sign)
		m.hugetlb = m.hugetlb || err == nil
	}
	return m, nil
}

// names of capabilities, each at its number. Source: linux/capability.h.
const names = `CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON
BPF CHECKPOINT_RESTORE`

func (m machine) has(capability string) bool {
	number := slices.Index(strings.Fields(names), strings.TrimPrefix(capability, "CAP_"))
	return number >= 0 && m.capabilities&(1<<number) != 0
}

func (m machine) adaptContainer(config map[string]any) {
	if process, ok := config["process"].(map[string]any); ok {
		m.adaptProcess(process)
	}
	linux, _ := config["linux"].(map[string]any)
	if resources, ok := linux["resources"].(map[string]any); ok && !m.hugetlb {
		delete(resources, "hugepageLimits")
	}
}

func (m machine) adaptProcess(process map[string]any) {
	if adj, ok := process["oomScoreAdj"].(json.Number); ok {
		if wanted, err := adj.Int64(); err == nil && wanted < int64(m.oomScoreAdj) {
			process["oomScoreAdj"] = m.oomScoreAdj
		}
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, value := range sets {
		set, _ := value.([]any)
		sets[name] = slices.DeleteFunc(set, func(capability any) bool {
			text, _ := capability.(string)
			return !m.has(text)
		})
	}
}
