// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestProcessorTimeIncludesThreadsThatHaveEnded(t *testing.T) {
	before, err := processorTime(os.Getpid())
	must(t, err)
	ended := make(chan error)
	go func() {
		// The thread ends with the goroutine.
		runtime.LockOSThread()
		var start, now unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &start)
		for err == nil && now.Nano()-start.Nano() < 50e6 {
			err = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
		}
		ended <- err
	}()
	must(t, <-ended)
	after, err := processorTime(os.Getpid())
	must(t, err)
	if after-before < 45 {
		t.Errorf("a thread ran for 50 ms, and the processor time grew by %g ms", after-before)
	}
	if _, err := processorTime(1 << 22); err == nil {
		t.Error("a process that cannot exist has a processor time")
	}
}

func TestSystemCallsOfOldAndNewThreadsAreCounted(t *testing.T) {
	tracepoint, err := systemCallsTracepoint()
	if err != nil {
		t.Skip(err)
	}
	counter, err := countSystemCalls(tracepoint, os.Getpid())
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	must(t, err)
	defer counter.close() //nolint:errcheck // the test ends
	// More threads at a time than the process has had.
	const threads, calls = 64, 10000
	measure := func(call func()) float64 {
		before, err := counter.read()
		must(t, err)
		var started, ended sync.WaitGroup
		started.Add(threads)
		for range threads {
			ended.Go(func() {
				runtime.LockOSThread()
				started.Done()
				started.Wait()
				for range calls / threads {
					call()
				}
			})
		}
		ended.Wait()
		after, err := counter.read()
		must(t, err)
		return after - before
	}
	if got := measure(func() { syscall.Getppid() }); got < .95*calls || got > 1.3*calls {
		t.Errorf("%d system calls were counted as %g", calls, got)
	}
	if got := measure(func() { syscall.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }); got > .3*calls { //nolint:errcheck // it cannot fail
		t.Errorf("%d calls that Go's runtime makes were counted as %g", calls, got)
	}
}

var must = require.NoError
