// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestCgroupsAreFoundOnThisMachine(t *testing.T) {
	c, err := FindCgroups()
	must(t, err)
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

// The root of a container's cgroups has processes, so the kernel delegates no controller there.
func TestControllersAreEnabledAlthoughTheCgroupHasProcesses(t *testing.T) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 || os.Geteuid() != 0 {
		t.Skipf("this needs root and cgroups of version 2: %v", err)
	}
	root := mounts[0].Mountpoint
	data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	controllers := strings.Fields(string(data))
	if err != nil || len(controllers) == 0 {
		t.Skipf("version 2 has no controllers here: %v", err)
	}
	control := filepath.Join(root, "cgroup.subtree_control")
	before, err := os.ReadFile(control)
	must(t, err)
	if !slices.Contains(strings.Fields(string(before)), controllers[0]) {
		if err := os.WriteFile(control, []byte("+"+controllers[0]), 0o600); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(control, []byte("-"+controllers[0]), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	dir := filepath.Join(root, fmt.Sprintf("delegated-%d", os.Getpid()))
	must(t, os.Mkdir(dir, 0o755))
	c := Cgroups{roots: []string{root}, tracking: root}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(c.Kill(ctx, filepath.Base(dir)), c.Remove(ctx, filepath.Base(dir))); err != nil {
			t.Error(err)
		}
	})
	sleep := exec.CommandContext(t.Context(), "sleep", "1000")
	must(t, sleep.Start())
	go sleep.Wait() //nolint:errcheck // the test kills it
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(sleep.Process.Pid)), 0o600))
	if err := enableControllers(dir, "+"+controllers[0]); err != nil {
		t.Error(err)
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
