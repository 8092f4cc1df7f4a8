// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// logs are the files of the log directory, in the real daemon's form.
type logs struct {
	dir                     string
	controlFile, serverFile *os.File
	tee                     io.Writer
}

func (l *logs) open(dir string, tee io.Writer) error {
	var errs [2]error
	l.dir = dir
	l.controlFile, errs[0] = openLog(filepath.Join(dir, "control.log"))
	l.serverFile, errs[1] = openLog(filepath.Join(dir, "server.log"))
	l.tee = tee
	return errors.Join(errs[:]...)
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

func (l *logs) close() {
	_ = l.controlFile.Close()
	_ = l.serverFile.Close()
}

func (l *logs) control(pid int, format string, args ...any) {
	line := logLine("Control", pid, format, args)
	// A log that cannot be written is not worth failing for.
	_, _ = io.WriteString(l.controlFile, line)
	if l.tee != nil {
		_, _ = io.WriteString(l.tee, line)
	}
}

func (l *logs) server(s *server, format string, args ...any) {
	line := logLine("Server", s.pid, format, args)
	if s.name == "" {
		_, _ = io.WriteString(l.serverFile, line)
		return
	}
	folder := filepath.Join(l.dir, s.name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return
	}
	if file, err := openLog(filepath.Join(folder, "server.log")); err == nil {
		_, _ = io.WriteString(file, line)
		_ = file.Close()
	}
}

func logLine(who string, pid int, format string, args []any) string {
	return fmt.Sprintf("[%s %s %5d] %s\n", time.Now().Format("2006-01-02 15:04:05.000"), who, pid, fmt.Sprintf(format, args...))
}
