// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// meter returns a number that grows, such as a time or a count. The difference between two
// readings is a measurement.
type meter func() (float64, error)

// clock returns a meter of time in milliseconds.
func clock() meter {
	start := time.Now()
	return func() (float64, error) { return milliseconds(time.Since(start)), nil }
}

// took returns the time of a call in milliseconds.
func took(call func() error) (float64, error) {
	start := time.Now()
	err := call()
	return milliseconds(time.Since(start)), err
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// processorTime returns the processor time of all threads of a process since its start, in
// milliseconds. schedstat has the same clock, without the threads that have ended.
func processorTime(pid int) (float64, error) {
	// CPUCLOCK_SCHED of the process, as clock_getcpuclockid returns it.
	clock := int32(^pid<<3 | 2) //nolint:gosec // pids have 22 bits
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return milliseconds(time.Duration(t.Nano())), nil
}

// anonymousMemory returns the memory of a process that no file backs, in MB. Resident memory
// also has the pages of the program, and how many of them depends on the page cache.
func anonymousMemory(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	maps, err := process.ProcSMapsRollup()
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return float64(maps.Anonymous) / 1e6, nil
}

// fileSize returns a meter of the size of a file in bytes.
func fileSize(path string) meter {
	return func() (float64, error) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		return float64(info.Size()), nil
	}
}

// runtimeCalls are system calls by which Go's runtime schedules its threads. Their number
// depends on the load of the machine, so they are not counted.
func runtimeCalls() []int {
	return []int{unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_SCHED_YIELD, unix.SYS_GETPID, unix.SYS_TGKILL, unix.SYS_RT_SIGRETURN, unix.SYS_MADVISE}
}

// systemCalls counts the system calls of a process, by events of perf at the kernel's
// tracepoint. While it is open, every system call of the machine is slower.
type systemCalls struct {
	// events has one event per thread that ran at the start. It counts for new threads as well.
	events []int
}

// systemCallsTracepoint returns the number of the tracepoint at the start of a system call.
// It returns an error if the kernel was built without it.
func systemCallsTracepoint() (uint64, error) {
	// It need not be mounted, and a mount would stay behind.
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(context) //nolint:errcheck // nothing was written
	if err := unix.FsconfigCreate(context); err != nil {
		return 0, fmt.Errorf("open tracefs: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(mount) //nolint:errcheck // nothing was written
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/events/raw_syscalls/sys_enter/id", mount))
	if err != nil {
		return 0, fmt.Errorf("find the tracepoint of system calls: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// countSystemCalls starts to count the system calls of a process.
func countSystemCalls(tracepoint uint64, pid int) (_ *systemCalls, err error) {
	c := &systemCalls{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("count the system calls of process %d: %w", pid, err), c.close())
		}
	}()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return nil, err
	}
	var filter []string
	for _, number := range runtimeCalls() {
		filter = append(filter, fmt.Sprintf("id != %d", number))
	}
	expression, err := unix.BytePtrFromString(strings.Join(filter, " && "))
	if err != nil {
		return nil, err
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			return nil, err
		}
		event, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_TRACEPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: tracepoint, Bits: unix.PerfBitInherit,
		}, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		c.events = append(c.events, event)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(event), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(expression))); errno != 0 {
			return nil, errno
		}
	}
	return c, nil
}

// read returns the number of system calls since the start of the count.
func (c *systemCalls) read() (float64, error) {
	var sum uint64
	for _, event := range c.events {
		var count [8]byte
		if _, err := unix.Read(event, count[:]); err != nil {
			return 0, fmt.Errorf("read a count of system calls: %w", err)
		}
		sum += binary.NativeEndian.Uint64(count[:])
	}
	return float64(sum), nil
}

// close ends the count.
func (c *systemCalls) close() error {
	var errs []error
	for _, event := range c.events {
		errs = append(errs, unix.Close(event))
	}
	return errors.Join(errs...)
}
