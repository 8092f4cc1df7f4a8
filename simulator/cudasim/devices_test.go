// SPDX-License-Identifier: Apache-2.0

package cudasim

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestRulesOfDeviceCgroups(t *testing.T) {
	for text, want := range map[string]bool{
		"a *:* rwm":                  true,
		"c 195:* rw":                 true,
		"c 195:1 rwm":                true,
		"b 8:0 rwm\nc 195:1 rw":      true,
		"c 195:1 r":                  false,
		"c *:* m":                    false,
		"c 195:0 rwm\nc 195:255 rwm": false,
		"b 195:1 rwm":                false,
		"":                           false,
	} {
		if got := rules(strings.Split(text, "\n")).canOpen(195, 1); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// deviceCgroup creates a device cgroup with rules until the test ends, and skips the test
// where it cannot.
func deviceCgroup(t *testing.T, allow ...string) string {
	t.Helper()
	folder, err := os.MkdirTemp(deviceCgroups, "cudasim-") //nolint:usetesting // a cgroup, not a folder on a disk
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skipf("no device cgroup of version 1 can be made: %v", err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	write(t, folder, "devices.deny", "a")
	for _, rule := range allow {
		write(t, folder, "devices.allow", rule)
	}
	return folder
}

func write(t *testing.T, folder, file, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
}

// A container that may create device nodes has all of them here.
func TestANodeThatTheDeviceCgroupRefusesIsNotSeen(t *testing.T) {
	w := newWorld(t, nil)
	folder := deviceCgroup(t, "c 195:255 rw", "c 510:* rwm", "c 195:1 rw")
	pid, _ := sleeping(t)
	write(t, folder, "cgroup.procs", strconv.Itoa(pid))
	all, err := w.sim.ComputeDevices()
	must(t, err)
	r := w.connect(pid).call(Request{Op: opInit})
	if len(r.Devices) != 1 || r.Devices[0].UUID != all[1].UUID {
		t.Errorf("devices %+v, want %s", r, all[1].UUID)
	}
	folder = deviceCgroup(t)
	other, _ := sleeping(t)
	write(t, folder, "cgroup.procs", strconv.Itoa(other))
	if r := w.connect(other).call(Request{Op: opInit}); r.Error == nil || r.Error.Name != errNoDevice {
		t.Errorf("a container without GPUs: %+v", r)
	}
}
