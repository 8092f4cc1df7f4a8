// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A container can do this to its /dev/shm, and its pod must go away all the same.
func TestANestOfFoldersDeeperThanFilesCanBeOpenIsRemoved(t *testing.T) {
	top, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(outside, nil, 0o600))
	for _, name := range []string{".1", ".2/x", "a/b/c", "a/.1"} {
		must(t, os.MkdirAll(filepath.Join(top, name), 0o700))
	}
	for link, target := range map[string]string{"link": filepath.Dir(outside), "a/link": filepath.Dir(outside), "a/b/file": outside} {
		must(t, os.Symlink(target, filepath.Join(top, link)))
	}
	nest, err := openFolder(unix.AT_FDCWD, top)
	must(t, err)
	for range 2000 {
		must(t, unix.Mkdirat(int(nest.Fd()), "d", 0o700))
		next, err := openFolder(int(nest.Fd()), "d")
		must(t, err)
		_ = nest.Close()
		nest = next
	}
	for i := range 1500 {
		must(t, unix.Mkdirat(int(nest.Fd()), strconv.Itoa(i), 0o700))
	}
	_ = nest.Close()
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	few := before
	few.Cur = min(few.Cur, 256)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	err = emptyFolder(t.Context(), top)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, err)
	left, err := os.ReadDir(top)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// endsWith ends once a file is gone.
type endsWith struct {
	context.Context
	file string
}

func (c endsWith) Err() error {
	if _, err := os.Stat(c.file); err != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func TestAStopIsNotHeldUpByAContainerThatGoesOnMakingFiles(t *testing.T) {
	s, d := supervise(t, Double(t))
	// The record goes first, so there are files left.
	err := s.StopMPS(endsWith{context.Background(), d.folders.record()}, shareOfOne.Name)
	require.Error(t, "StopMPS", err, context.DeadlineExceeded, d.folders.dir, "end the pods")
}

func TestAFolderIsEmptiedWhileFilesAreMade(t *testing.T) {
	top := t.TempDir()
	inner := filepath.Join(top, "inner")
	made := make(chan struct{})
	go func() {
		defer close(made)
		for i := range 1000 {
			_ = os.Mkdir(inner, 0o700)
			_ = os.WriteFile(filepath.Join(inner, strconv.Itoa(i)), nil, 0o600) // unless the folder has gone again
		}
	}()
	for {
		if err := emptyFolder(t.Context(), top); err != nil {
			t.Error(err)
		}
		select {
		case <-made:
			return
		default:
		}
	}
}

func TestNoFolderIsEmptiedAfterTheEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, inner := range []string{"file", "folder/file", "folder/folder/file"} {
		top := t.TempDir()
		file := filepath.Join(top, inner)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)))
		require.Error(t, inner, emptyFolder(ended, top), context.Canceled, top)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// A start empties the pipes, and is bounded as well.
func TestAStartIsNotHeldUpByAContainerThatGoesOnMakingFiles(t *testing.T) {
	o := Double(t)
	f := o.folders("gpu-1a-00")
	must(t, o.makeFolders(t.Context(), f, gpu.MPSDaemon{}))
	must(t, os.WriteFile(filepath.Join(f.pipe, "file"), nil, 0o600))
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(gpu.ErrTimeout)
	require.Error(t, "makeFolders", o.makeFolders(ended, f, gpu.MPSDaemon{}), gpu.ErrTimeout, f.pipe)
}
