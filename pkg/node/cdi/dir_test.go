// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
)

func TestCheckCreatesAMissingDirectoryAndReportsAReplacedOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "cdi")
	d := cdi.NewDir(path)
	check := func(when string, want bool) {
		t.Helper()
		changed, err := d.Check()
		if changed != want || err != nil {
			t.Errorf("%s: changed is %v, %v, want %v", when, changed, err, want)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("%s: there is no directory: %v", when, err)
		}
	}
	check("at first", false)
	check("nothing has happened", false)
	// The old one stays open, or the new one may get its inode.
	old, err := os.Open(path)
	must(t, err)
	defer old.Close() //nolint:errcheck // it was only read
	must(t, os.RemoveAll(filepath.Dir(path)))
	check("removed", true)
	check("made again", false)
	must(t, errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o755)))
	check("replaced", true)
}

// A mounted directory that was removed on the host still appears in the agent's
// container. Nothing can be created in it.
func TestADirectoryThatWasRemovedOnTheHostIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	must(t, os.Mkdir(path, 0o755))
	fd, err := unix.Open(path, unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd) //nolint:errcheck // it was only read
	must(t, os.Remove(path))
	mounted := filepath.Join("/proc/self/fd", strconv.Itoa(fd))
	if _, err := cdi.NewDir(mounted).Check(); err == nil || !strings.Contains(err.Error(), "restart the agent") {
		t.Errorf("error %v, want that the agent is to be restarted", err)
	}
}
