// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Log is the path of a kernel's log. It is "/dev/kmsg", or a plain file of such records.
type Log string

const (
	// reopenAfter is the time between attempts to open the log.
	reopenAfter = time.Minute
	// pollInterval is the time between reads at the end of a plain file. A device blocks.
	pollInterval = time.Second
	// maxRecord is above the limit of a record, 8 KiB. The kernel refuses smaller buffers.
	maxRecord = 16 << 10
)

// Check returns why the log cannot be read; nil if it can.
func (l Log) Check() error {
	file, err := os.Open(string(l))
	if err != nil {
		return err
	}
	return file.Close()
}

// Follow calls on for each new XID, one at a time, until ctx ends. It logs a failure to read the
// log, and retries.
func (l Log) Follow(ctx context.Context, on func(gpu.LoggedXID)) {
	last := ""
	for ctx.Err() == nil {
		err := l.followOnce(ctx, on)
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot follow the kernel's log, will retry",
				"effect", "users are not told which program ended the programs of a GPU")
		}
		wait(ctx, reopenAfter)
	}
}

func (l Log) followOnce(ctx context.Context, on func(gpu.LoggedXID)) error {
	file, err := os.Open(string(l))
	if err != nil {
		return err
	}
	// The runtime polls the device, so a close ends a read.
	closed := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer func() {
		if closed() {
			_ = file.Close()
		}
	}()
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	return follow(ctx, file, on)
}

// follow reads records until ctx ends or a read fails. Each read of the device returns one record.
// The lines of a record after its first one begin with a space.
func follow(ctx context.Context, log io.Reader, on func(gpu.LoggedXID)) error {
	lines := bufio.NewReaderSize(log, maxRecord)
	for ctx.Err() == nil {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == nil:
			if x, ok := parse(line); ok {
				on(x)
			}
		case errors.Is(err, io.EOF):
			wait(ctx, pollInterval)
		case errors.Is(err, unix.EPIPE):
			klog.FromContext(ctx).Info("The kernel has overwritten records before they were read")
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// record matches the start of a record with an XID: "priority,sequence,microseconds,flags;text".
// Records of programs have a priority of at least 8. The instances of a GPU in MIG mode, the
// process and its name may be absent; "'<unknown>'" stands for an unknown process.
//
// Sources: Documentation/ABI/testing/dev-kmsg of Linux; krcReportXid and nv_report_error of NVIDIA's
// kernel modules.
var record = regexp.MustCompile(`^[0-7],\d{1,20},(\d{1,15}),[^;]{0,128};NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?: GPU-I:\d{1,3})?(?: GPU-CI:\d{1,3})?\): (\d{1,6}), (?:pid=(?:(\d{1,9})|'<unknown>'), (?:name=([^,]{0,15}))?)?`)

// parse returns the XID of a record; ok is false for any other record.
func parse(line []byte) (x gpu.LoggedXID, ok bool) {
	m := record.FindSubmatch(line)
	if m == nil {
		return gpu.LoggedXID{}, false
	}
	address, err := gpu.ParsePCIAddress(string(m[2]) + ".0")
	if err != nil {
		return gpu.LoggedXID{}, false
	}
	// The expression admits no digits that these calls refuse.
	at, _ := strconv.ParseInt(string(m[1]), 10, 64)
	number, _ := strconv.ParseUint(string(m[3]), 10, 64)
	pid, _ := strconv.Atoi(string(m[4]))
	return gpu.LoggedXID{At: time.Duration(at) * time.Microsecond, GPU: address, Number: number, PID: pid, Command: string(m[5])}, true
}
