// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFailedCommandSaysWhatItPrinted(t *testing.T) {
	_, err := Run(t.Context(), "sh", "-c", "echo out; echo why >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "why") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if _, err := Run(t.Context(), "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestSettingsAreKeptOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sysctls.json")
	if err := SaveSysctls(file); err != nil {
		t.Fatal(err)
	}
	saved, err := readSaved(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kubeletSysctls {
		if saved.Values[name] == "" {
			t.Errorf("%s was not kept", name)
		}
	}
}

func TestRestoreSysctlsSucceedsWithoutKeptValues(t *testing.T) {
	if err := RestoreSysctls(filepath.Join(t.TempDir(), "sysctls.json")); err != nil {
		t.Error(err)
	}
}

func TestCgroupsAreFoundOnThisMachine(t *testing.T) {
	c, err := FindCgroups()
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.tracking) || len(c.roots) == 0 {
		t.Errorf("got %+v", c)
	}
	if members, err := c.Members("/no-such-cgroup"); err != nil || len(members) != 0 {
		t.Errorf("members of nothing: %v, %v", members, err)
	}
	if err := c.Remove(t.Context(), "/no-such-cgroup"); err != nil {
		t.Errorf("removal of nothing: %v", err)
	}
}

func TestUnmountSucceedsIfNothingIsMounted(t *testing.T) {
	if err := UnmountBelow(t.TempDir()); err != nil {
		t.Error(err)
	}
}
