// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// blockSize is the unit of st_blocks on every file system.
const blockSize = 512

// boundLogs empties the log files of a daemon that exceed their limit: a client that
// connects repeatedly fills them. The daemon continues to write to them, after a hole
// unless it appends.
func (o *Options) boundLogs(ctx context.Context, f folders) error {
	paths, err := filepath.Glob(filepath.Join(f.log, "*.log"))
	paths = append(paths, f.serverLog())
	errs := []error{err}
	for _, path := range paths {
		cut, err := cutLog(path, o.LogLimit)
		if cut > 0 {
			klog.FromContext(ctx).Info("Log file of an MPS daemon was too large, emptied it", "path", path, "bytes", cut, "limit", o.LogLimit)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// cutLog empties a file that uses more bytes on the disk than limit. It returns the
// number of bytes that the file used.
func cutLog(path string, limit int64) (cut int64, err error) {
	var info unix.Stat_t
	err = unix.Lstat(path, &info)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("lstat %s: %w", path, err)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG || info.Blocks*blockSize <= limit {
		return 0, nil
	}
	if err := unix.Truncate(path, 0); err != nil {
		return 0, fmt.Errorf("truncate %s: %w", path, err)
	}
	return info.Blocks * blockSize, nil
}

// mostQuoted is the limit in bytes for the output of a program in an error.
const mostQuoted = 400

// readEnd returns the end of a log file.
func readEnd(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	end := make([]byte, min(mostQuoted, info.Size()))
	n, err := file.ReadAt(end, info.Size()-int64(len(end)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(string(end[:n])), nil
}
