// SPDX-License-Identifier: Apache-2.0

package folder_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func share(t *testing.T, path string) *folder.Lock {
	t.Helper()
	l, err := folder.Share(t.Context(), path, 0o750)
	must(t, err)
	return l
}

func mustClose(t *testing.T, l *folder.Lock) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// wantOwn checks whether the lock can become exclusive.
func wantOwn(t *testing.T, l *folder.Lock, want bool) {
	t.Helper()
	if ok, err := l.Own(); ok != want || err != nil {
		t.Errorf("to have it alone is %v, %v, want %v", ok, err, want)
	}
}

func TestTheLastOfSeveralHasTheFolderAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "shared")
	first, second, third := share(t, path), share(t, path), share(t, path)
	wantOwn(t, first, false)
	mustClose(t, first)
	mustClose(t, second)
	wantOwn(t, third, true)
	mustClose(t, third)
}

func TestShareWaitsForTheOwnerOfAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared")
	alone, ok, err := folder.Own(path, 0o750)
	if !ok || err != nil {
		t.Fatalf("to have a new folder alone: %v, %v", ok, err)
	}
	if other, ok, err := folder.Own(path, 0o750); ok || err != nil || other != nil {
		t.Errorf("another one has it alone: %v, %v, %v", other, ok, err)
	}
	ended, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("waited enough"))
	defer cancel()
	if _, err := folder.Share(ended, path, 0o750); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "waited enough") {
		t.Errorf("error %v, want one that names the folder and why it waits no more", err)
	}
	shared := make(chan *folder.Lock)
	go func() { shared <- share(t, path) }()
	select {
	case <-shared:
		t.Error("the folder is shared although it is owned")
	case <-time.After(50 * time.Millisecond):
	}
	mustClose(t, alone)
	mustClose(t, <-shared)
}

func TestAReplacedFolderCannotBeOwned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared")
	old := share(t, path)
	must(t, os.Rename(path, path+".old"))
	mustClose(t, share(t, path))
	wantOwn(t, old, false)
	mustClose(t, old)
	gone := share(t, path)
	must(t, os.Remove(path))
	wantOwn(t, gone, false)
	mustClose(t, gone)
}

func TestAPathToAFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := folder.Share(t.Context(), path, 0o750); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("sharing a file: %v, want an error that names it", err)
	}
	// No folder can be created in /proc, and the error is the same as for a removed
	// parent.
	_, err := folder.Share(t.Context(), "/proc/none", 0o750)
	require.Error(t, "sharing /proc/none", err, fs.ErrNotExist)
	if _, ok, err := folder.Own("/proc/none", 0o750); ok || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("having /proc/none alone: %v, %v, want %v", ok, err, fs.ErrNotExist)
	}
}

// Each last user removes the folder and its parent. The folder must exist as long as
// any user has its lock.
func TestAFolderExistsWhileItIsLocked(t *testing.T) {
	const users, rounds = 8, 200
	parent := filepath.Join(t.TempDir(), "parent")
	path := filepath.Join(parent, "shared")
	var removed, inside atomic.Int32
	var all sync.WaitGroup
	for user := range users {
		all.Go(func() {
			for range rounds {
				l, err := folder.Share(t.Context(), path, 0o750)
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				mine := filepath.Join(path, fmt.Sprint(user))
				for range 3 {
					if err := os.WriteFile(mine, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
				if err := os.Remove(mine); err != nil {
					t.Error(err)
				}
				inside.Add(-1)
				ok, err := l.Own()
				if err != nil {
					t.Error(err)
				}
				if ok {
					if n := inside.Load(); n != 0 {
						t.Errorf("%d are in the folder that one has alone", n)
					}
					if err := errors.Join(folder.Remove(path), folder.Remove(parent)); err != nil {
						t.Error(err)
					}
					removed.Add(1)
				}
				mustClose(t, l)
			}
		})
	}
	all.Wait()
	_, err := os.Stat(parent)
	require.Error(t, "the folder that the last one has left", err, fs.ErrNotExist)
	if removed.Load() < 2 {
		t.Errorf("the folder was removed %d times, so nothing was tried", removed.Load())
	}
}
