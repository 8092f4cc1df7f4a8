// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The lines are of real drivers, of releases 450 to 595.
func TestXIDsOfRealDrivers(t *testing.T) {
	bus := func(domain uint32, bus, device uint8) gpu.PCIAddress {
		return gpu.PCIAddress{Domain: domain, Bus: bus, Device: device}
	}
	for line, want := range map[string]gpu.LoggedXID{
		"3,917,249259018,-;NVRM: Xid (PCI:0000:00:06): 31, pid=11534, name=gpuload, channel 0x0000000e, intr 00000000. MMU Fault: ENGINE GRAPHICS": {
			At: 249259018 * time.Microsecond, GPU: bus(0, 0, 6), Number: 31, PID: 11534, Command: "gpuload",
		},
		"3,1,2,-,caller=T99;NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception": {
			At: 2 * time.Microsecond, GPU: bus(0, 0xcb, 0), Number: 13, Command: "<unknown>",
		},
		"3,1,2,-;NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": {
			At: 2 * time.Microsecond, GPU: bus(0, 0xdc, 0), Number: 45, PID: 1818990, Command: "python3",
		},
		"3,1,2,-;NVRM: Xid (PCI:0009:01:00 GPU-I:01 GPU-CI:00): 43, pid=7, name=a, b": {At: 2 * time.Microsecond, GPU: bus(9, 1, 0), Number: 43, PID: 7, Command: "a"},
		"3,1,2,-;NVRM: Xid (PCI:10000:01:00 GPU-I:13): 31, pid=7, name=a, b":          {At: 2 * time.Microsecond, GPU: bus(0x10000, 1, 0), Number: 31, PID: 7, Command: "a"},
		"3,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off":        {At: 2 * time.Microsecond, GPU: bus(0, 1, 0), Number: 79, PID: 1122},
		"3,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.":         {At: 2 * time.Microsecond, GPU: bus(0, 1, 0), Number: 79},
		"3,1,2,-;NVRM: Xid (0000:03:00): 14, Channel 00000001":                        {At: 2 * time.Microsecond, GPU: bus(0, 3, 0), Number: 14},
	} {
		if got, ok := parse([]byte(line)); !ok || got != want {
			t.Errorf("%s\n%t (-want +got):\n%s", line, ok, cmp.Diff(want, got))
		}
	}
}

func TestANameOfAProcessIsData(t *testing.T) {
	name := "x, pid=1, name=" + strings.Repeat("y", 9000)
	x, ok := parse([]byte("3,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=" + name))
	if !ok || x.PID != 7 || x.Command != "x" {
		t.Errorf("%t %+v", ok, x)
	}
	x, ok = parse([]byte("3,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=" + strings.Repeat("z", 9000) + ", "))
	if !ok || len(x.Command) > 15 {
		t.Errorf("%t %+v", ok, x)
	}
}

func TestOtherRecordsAreLeftOut(t *testing.T) {
	for _, line := range []string{
		"", ";", " SUBSYSTEM=pci", "3,1,2,-;NVRM: GPU at PCI:0000:00:06: GPU-1",
		// The kernel marks what a program writes.
		"12,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a, b",
		"3,1,2,-;sh: NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a, b",
		"3,1,2,-;x\\x0a3,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=a, b",
		"3,1,2,-;NVRM: Xid (PCI:0000:01:ff): 31, pid=7, name=a, b",
		"3,1,2,-;NVRM: Xid (PCI:0000:01:00): 99999999999999999999, pid=7",
		"3,1,2,-;NVRM: SXid (PCI:0000:01:00): 31, pid=7, name=a, b",
	} {
		if x, ok := parse([]byte(line)); ok {
			t.Errorf("%q: %+v", line, x)
		}
	}
}

// reads returns one result for each read.
type reads []any

func (r *reads) Read(p []byte) (int, error) {
	if len(*r) == 0 {
		return 0, unix.EIO
	}
	next := (*r)[0]
	*r = (*r)[1:]
	if err, failed := next.(error); failed {
		return 0, err
	}
	return copy(p, next.(string)), nil
}

func TestReadingGoesOnAfterRecordsThatAreLost(t *testing.T) {
	const xid = "3,1,2,-;NVRM: Xid (PCI:0000:01:00): %s, pid=7, name=a, b\n SUBSYSTEM=pci\n"
	log := &reads{
		strings.Replace(xid, "%s", "31", 1), unix.EPIPE, strings.Repeat("x", maxRecord), "\n", strings.Replace(xid, "%s", "13", 1),
	}
	var got []uint64
	require.Error(t, "follow", follow(t.Context(), log, func(x gpu.LoggedXID) { got = append(got, x.Number) }), unix.EIO)
	require.Same(t, "XIDs", []uint64{31, 13}, got)
}

func TestFollowStartsAtTheEndOfTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	add := func(number string) {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = file.WriteString("3,1,2,-;NVRM: Xid (PCI:0000:01:00): " + number + ", pid=7, name=a, b\n")
			err = errors.Join(err, file.Close())
		}
		require.NoError(t, err)
	}
	add("13")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var got []uint64
		done := make(chan struct{})
		go func() {
			defer close(done)
			Log(path).Follow(ctx, func(x gpu.LoggedXID) { got = append(got, x.Number) })
		}()
		synctest.Wait()
		add("31")
		<-time.After(2 * pollInterval)
		add("43")
		<-time.After(2 * pollInterval)
		cancel()
		<-done
		require.Same(t, "XIDs", []uint64{31, 43}, got)
	})
}

// A read of the device waits for the next record, which may never come.
func TestFollowEndsWithItsContext(t *testing.T) {
	const log = Log("/dev/kmsg")
	if err := log.Check(); err != nil {
		t.Skip("this test needs the right to read the kernel's log: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); log.Follow(ctx, func(gpu.LoggedXID) {}) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("Follow still reads")
	}
}

func TestALogThatIsAbsentIsAnError(t *testing.T) {
	require.Error(t, "Check", Log(filepath.Join(t.TempDir(), "kmsg")).Check(), fs.ErrNotExist)
}
