// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// readBatch is the number of entries of proc that are read at a time. A process that
// starts during the pass has a higher PID than the entries before it, so that a later
// batch has it.
const readBatch = 64

// eachGroups calls do with the text of proc/PID/cgroup of each process. It leaves out
// processes that end meanwhile, and threads of the kernel: they are in no pod, and on an idle
// node nine of ten processes.
func (r Root) eachGroups(do func(pid int, groups string) error) error {
	kernel, err := r.kernelThreads()
	if err != nil {
		return err
	}
	if err := r.eachProcess(func(pid int) error {
		if kernel[pid] {
			return nil
		}
		return r.doWithGroups(pid, do)
	}); err != nil || len(kernel) == 0 {
		return err
	}
	// A thread may have ended, and its PID may be a process' by now.
	still, err := r.childrenOfKernel()
	if err != nil {
		return err
	}
	for pid := range kernel {
		if still[pid] {
			continue
		}
		if err := r.doWithGroups(pid, do); err != nil {
			return err
		}
	}
	return nil
}

func (r Root) doWithGroups(pid int, do func(pid int, groups string) error) error {
	groups, err := r.file(pid, "cgroup")
	if hasEnded(err) {
		return nil
	}
	if err == nil {
		err = do(pid, groups)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// eachProcess calls do with each PID.
func (r Root) eachProcess(do func(pid int) error) error {
	dir, err := os.Open(filepath.Join(string(r), "proc"))
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close() //nolint:errcheck // it was only read
	for {
		names, err := dir.Readdirnames(readBatch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue // not a process
			}
			if err := do(pid); err != nil {
				return err
			}
		}
	}
}

const (
	// kthreadd is the parent of all threads of the kernel. It has this PID in the PID
	// namespace of the host.
	kthreadd = 2
	// flagsField is the position of the flags of the kernel in proc/PID/stat after the
	// name: field 9 of all.
	flagsField = 9 - 3
	// kernelThread is the flag PF_KTHREAD of the kernel's include/linux/sched.h.
	kernelThread = 0x00200000
)

// kernelThreads returns the PIDs of the threads of the kernel. The programs that the kernel
// starts itself, such as modprobe, are among them: they are in no pod either. There are none
// in a PID namespace other than the host's, and with a kernel that does not list children
// (CONFIG_PROC_CHILDREN). Source: proc/2/stat.
func (r Root) kernelThreads() (map[int]bool, error) {
	stat, err := r.file(kthreadd, "stat")
	if hasEnded(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", kthreadd, err)
	}
	fields := fieldsOf(stat)
	if len(fields) <= flagsField {
		return nil, fmt.Errorf("process %d: %w: stat %q", kthreadd, gpu.ErrCorrupt, stat)
	}
	if flags, err := strconv.ParseUint(fields[flagsField], 10, 64); err == nil && flags&kernelThread != 0 {
		return r.childrenOfKernel()
	}
	return nil, nil
}

// childrenOfKernel returns the PIDs of the children of kthreadd. Source:
// proc/2/task/2/children.
func (r Root) childrenOfKernel() (map[int]bool, error) {
	text, err := r.file(kthreadd, "task/2/children")
	if hasEnded(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", kthreadd, err)
	}
	threads := map[int]bool{}
	for field := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w: children %q", kthreadd, gpu.ErrCorrupt, field)
		}
		threads[pid] = true
	}
	return threads, nil
}

// fieldsOf returns the fields of proc/PID/stat after the name. The name is in parentheses
// and may contain any character.
func fieldsOf(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}
