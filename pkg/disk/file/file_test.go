// SPDX-License-Identifier: Apache-2.0

package file_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	// The last one is shorter than the one before.
	for _, size := range []int{0, 1, 511, 512, 513, 100_000, 7} {
		want := bytes.Repeat([]byte("x"), size)
		must(t, file.Write(path, want, 0o600))
		got, err := file.Read(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, size)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want %v", info.Mode(), err, fs.FileMode(0o600))
	}
}

func TestTheStartOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		all := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		must(t, file.Write(path, all, 0o600))
		for _, most := range []int{0, 1, 511, 512, 513, 5000, 100_000, 100_001} {
			want := all[:min(size, most)]
			if got, err := file.ReadStart(path, most); err != nil || !bytes.Equal(got, want) || cap(got) > most {
				t.Errorf("the first %d of %d bytes: %d in memory for %d, %v", most, size, len(got), cap(got), err)
			}
		}
	}
}

func TestAFileOfProcIsRead(t *testing.T) {
	got, err := file.Read("/proc/self/cmdline")
	want, wantErr := os.ReadFile("/proc/self/cmdline")
	if err != nil || wantErr != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v; want %q, %v", got, err, want, wantErr)
	}
}

func TestAnOpenFileIsClosedInOtherPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := file.Open(path, os.O_RDWR|os.O_CREATE, 0o640)
	must(t, err)
	defer f.Close() //nolint:errcheck // the test reads it
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v", flags, err)
	}
	_, err = f.WriteString("text")
	must(t, err)
	_, err = f.Seek(0, io.SeekStart)
	must(t, err)
	if got, err := io.ReadAll(f); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	missing, below := filepath.Join(dir, "missing"), filepath.Join(dir, "missing", "f")
	open := func(path string) error {
		_, err := file.Open(path, os.O_RDONLY, 0)
		return err
	}
	read := func(path string) error {
		_, err := file.Read(path)
		return err
	}
	write := func(path string) error { return file.Write(path, nil, 0o600) }
	full := func(path string) error { return file.Write(path, []byte("x"), 0o600) }
	for _, c := range []struct {
		name string
		do   func(path string) error
		path string
		want error
	}{
		{"open", open, missing, fs.ErrNotExist},
		{"read", read, missing, fs.ErrNotExist},
		{"read", read, dir, unix.EISDIR},
		{"write", write, below, fs.ErrNotExist},
		{"write", write, dir, unix.EISDIR},
		{"write to a full disk", full, "/dev/full", unix.ENOSPC},
		{"remove", file.Remove, missing, fs.ErrNotExist},
		{"remove", file.Remove, dir, unix.EISDIR},
	} {
		err := c.do(c.path)
		var of *fs.PathError
		if !errors.Is(err, c.want) || !errors.As(err, &of) || of.Path != c.path {
			t.Errorf("%s %s: %v, want %v", c.name, c.path, err, c.want)
		}
	}
}

var must = require.NoError
