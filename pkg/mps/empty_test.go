package mps

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A container can do this to its /dev/shm, and its pod must go away all the same.
func TestANestOfFoldersDeeperThanFilesCanBeOpenIsRemoved(t *testing.T) {
	top, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".1", ".2/x", "a/b/c", "a/.1"} {
		if err := os.MkdirAll(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": filepath.Dir(outside), "a/link": filepath.Dir(outside), "a/b/file": outside} {
		if err := os.Symlink(target, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	nest, err := openFolder(unix.AT_FDCWD, top)
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if err := unix.Mkdirat(int(nest.Fd()), "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := openFolder(int(nest.Fd()), "d")
		if err != nil {
			t.Fatal(err)
		}
		_ = nest.Close()
		nest = next
	}
	for i := range 1500 {
		if err := unix.Mkdirat(int(nest.Fd()), strconv.Itoa(i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_ = nest.Close()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = min(few.Cur, 256)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = emptyFolder(top)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(top)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}
