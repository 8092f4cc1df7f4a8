// SPDX-License-Identifier: Apache-2.0

package home_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
	"github.com/gpu-dra/gpu-dra-driver/test/files/mountns"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestMain(m *testing.M) {
	mountns.Enter()
	os.Exit(m.Run())
}

// enter starts an agent, which creates the lock file as package claim does.
func enter(t *testing.T, driver string) *home.Home {
	t.Helper()
	h, err := home.Enter(t.Context(), driver, func() {})
	must(t, err)
	must(t, os.WriteFile(h.LockFile(), nil, 0o600))
	return h
}

func nothingElse() (bool, error) { return false, nil }

func leave(t *testing.T, h *home.Home) {
	t.Helper()
	if err := h.Leave(nothingElse); err != nil {
		t.Error(err)
	}
}

// wantLeft compares the tree below a folder with the wanted files, links and empty
// folders. Links end with "@", and empty folders with "/".
func wantLeft(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			if inner, err := os.ReadDir(path); err != nil || len(inner) > 0 {
				return err
			}
			name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			name += "@"
		}
		got = append(got, name)
		return nil
	}))
	slices.Sort(want)
	slices.Sort(got)
	require.Same(t, "left", want, got)
}

// all returns the files of a home that claims or the next agent need.
func all(more ...string) []string {
	return append(more, "gpu.nvidia.com/agent/lock", "gpu.nvidia.com/agent/nvidia-cdi-hook")
}

func TestTheLastAgentRemovesItsHome(t *testing.T) {
	plugins := t.TempDir()
	driver := filepath.Join(plugins, "gpu.nvidia.com")
	before := enter(t, driver)
	_, err := before.InstallHook(program(t))
	must(t, err)
	// A rolling update: the new agent is there before the old one leaves.
	after := enter(t, driver)
	leave(t, before)
	wantLeft(t, plugins, all("gpu.nvidia.com/agent/claims/quarantine/", "gpu.nvidia.com/agent/compute-modes/quarantine/", "gpu.nvidia.com/agent/events/quarantine/", "gpu.nvidia.com/agent/faults/quarantine/", "gpu.nvidia.com/agent/mig-devices/quarantine/", "gpu.nvidia.com/agent/mig-modes/quarantine/", "gpu.nvidia.com/agent/node-config/quarantine/", "gpu.nvidia.com/agent/time-slices/quarantine/")...)
	if err := errors.Join(after.Claims.Write("uid", nil), after.Events.Write("uid-gpu-1b-00", nil)); err != nil {
		t.Error(err)
	}
	if err := after.Claims.Delete("uid"); err != nil {
		t.Error(err)
	}
	// Upstream's folder outlives the last claim.
	must(t, os.Mkdir(filepath.Join(driver, "dra-device-metadata"), 0o755))
	// So do the locks of the memory hook, and the agent's socket for it.
	must(t, errors.Join(os.MkdirAll(after.Limits(), 0o700), os.WriteFile(filepath.Join(after.Limits(), "0000:1b:00.0.lock"), nil, 0o600), os.WriteFile(after.HookSocket(), nil, 0o600)))
	leave(t, after)
	wantLeft(t, plugins)
}

func TestRecordsKeepEverything(t *testing.T) {
	for name, tc := range map[string]struct {
		hold func(h *home.Home) error
		held func() (bool, error)
		// left besides the lock, the hook and the folders of empty stores.
		left []string
	}{
		"a claim": {
			hold: func(h *home.Home) error { return h.Claims.Write("uid", nil) },
			left: []string{"claims/uid.record"},
		},
		"a record in quarantine": {
			hold: func(h *home.Home) error {
				return errors.Join(h.Claims.Write("uid", nil), h.Claims.Quarantine("uid", "a test"))
			},
			left: []string{"claims/quarantine/uid.record", "claims/quarantine/uid.record.reason"},
		},
		"a MIG mode that is to be switched off": {
			hold: func(h *home.Home) error { return h.MIGModes.Write("gpu-1b-00", nil) },
			left: []string{"mig-modes/gpu-1b-00.record"},
		},
		"a MIG device that stays": {
			hold: func(h *home.Home) error { return h.MIGDevices.Write("gpu-1b-00", nil) },
			left: []string{"mig-devices/gpu-1b-00.record"},
		},
		"a time slice that is to be restored": {
			hold: func(h *home.Home) error { return h.TimeSlices.Write("gpu-1b-00", nil) },
			left: []string{"time-slices/gpu-1b-00.record"},
		},
		"a compute mode that is to be restored": {
			hold: func(h *home.Home) error { return h.ComputeModes.Write("gpu-1b-00", nil) },
			left: []string{"compute-modes/gpu-1b-00.record"},
		},
		"a GPU that has failed": {
			hold: func(h *home.Home) error { return h.Faults.Write("gpu-1b-00", nil) },
			left: []string{"faults/gpu-1b-00.record"},
		},
		"a claim without a record": {
			hold: func(*home.Home) error { return nil },
			held: func() (bool, error) { return true, nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			plugins := t.TempDir()
			driver := filepath.Join(plugins, "gpu.nvidia.com")
			h := enter(t, driver)
			_, err := h.InstallHook(program(t))
			must(t, err)
			must(t, tc.hold(h))
			held := tc.held
			if held == nil {
				held = nothingElse
			}
			if err := h.Leave(held); err != nil {
				t.Error(err)
			}
			want := all()
			for _, file := range tc.left {
				want = append(want, "gpu.nvidia.com/agent/"+file)
			}
			for _, store := range []string{"claims", "mig-modes", "mig-devices", "time-slices", "compute-modes", "events", "faults", "node-config"} {
				if !slices.ContainsFunc(tc.left, func(file string) bool { return strings.HasPrefix(file, store+"/quarantine/") }) {
					want = append(want, "gpu.nvidia.com/agent/"+store+"/quarantine/")
				}
			}
			wantLeft(t, plugins, want...)

			// The next agent finds it, releases it and removes the home.
			next := enter(t, driver)
			for _, key := range []string{"uid", "gpu-1b-00"} {
				if err := errors.Join(next.Claims.Delete(key), next.MIGModes.Delete(key), next.MIGDevices.Delete(key), next.TimeSlices.Delete(key), next.ComputeModes.Delete(key), next.Faults.Delete(key)); err != nil {
					t.Error(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(driver, "agent/claims/quarantine")); err != nil {
				t.Error(err)
			}
			leave(t, next)
			wantLeft(t, plugins)
		})
	}
}

// The next release does not need the record of the configuration.
func TestTheRecordOfTheConfigurationGoesWithTheHome(t *testing.T) {
	plugins := t.TempDir()
	h := enter(t, filepath.Join(plugins, "gpu.nvidia.com"))
	must(t, h.NodeConfig.Write("followed", nil))
	must(t, h.Leave(func() (bool, error) { return false, nil }))
	wantLeft(t, plugins)
}

func TestEverythingStaysIfTheHeldDevicesAreUnknown(t *testing.T) {
	driver := t.TempDir()
	h := enter(t, driver)
	broken := errors.New("the disk is broken")
	require.Error(t, "Leave", h.Leave(func() (bool, error) { return false, broken }), broken)
	wantLeft(t, driver, "agent/lock", "agent/claims/quarantine/", "agent/compute-modes/quarantine/", "agent/events/quarantine/", "agent/faults/quarantine/", "agent/mig-devices/quarantine/", "agent/mig-modes/quarantine/", "agent/node-config/quarantine/", "agent/time-slices/quarantine/")
}

func TestFilesOfOthersAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		theirs, left []string
	}{
		"another driver of that name":        {theirs: []string{"checkpoint.json", "dra.sock"}, left: []string{"checkpoint.json", "dra.sock"}},
		"metadata of a claim":                {theirs: []string{"dra-device-metadata/team_one/gpu/metadata.json"}, left: []string{"dra-device-metadata/team_one/gpu/metadata.json"}},
		"a user's file in the home":          {theirs: []string{"agent/notes"}, left: []string{"agent/notes"}},
		"a user's file among the records":    {theirs: []string{"agent/claims/notes"}, left: []string{"agent/claims/notes"}},
		"a user's folder with a lock's name": {theirs: []string{"agent/.nvidia-cdi-hook-mine/notes"}, left: []string{"agent/.nvidia-cdi-hook-mine/notes"}},
	} {
		t.Run(name, func(t *testing.T) {
			driver := t.TempDir()
			h := enter(t, driver)
			_, err := h.InstallHook(program(t))
			must(t, err)
			for _, file := range tc.theirs {
				path := filepath.Join(driver, file)
				must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)))
			}
			leave(t, h)
			wantLeft(t, driver, tc.left...)
		})
	}
}

func TestTheNextAgentTakesOverWhatACrashHasLeft(t *testing.T) {
	plugins := t.TempDir()
	driver := filepath.Join(plugins, "gpu.nvidia.com")
	crashed := enter(t, driver)
	_, err := crashed.InstallHook(program(t))
	must(t, err)
	// It died in the middle of installing a hook and of writing a record, and
	// the kernel has released its lock.
	for _, dir := range []string{"memory-hook", "memory-limits"} {
		must(t, os.Mkdir(filepath.Join(driver, "agent", dir), 0o750))
	}
	for _, file := range []string{".nvidia-cdi-hook-123", "memory-hooks.sock.123", "claims/uid.tmp", "memory-hook/libc.so.6"} {
		must(t, os.WriteFile(filepath.Join(driver, "agent", file), nil, 0o600))
	}
	must(t, crashed.Close())
	leave(t, enter(t, driver))
	wantLeft(t, plugins)
}

// An administrator may move the home to another disk.
func TestAHomeBehindALinkIsUsedAndTheLinkStays(t *testing.T) {
	driver, elsewhere := t.TempDir(), t.TempDir()
	must(t, os.Symlink(elsewhere, filepath.Join(driver, "agent")))
	h := enter(t, driver)
	must(t, h.Claims.Write("uid", nil))
	wantLeft(t, elsewhere, "lock", "claims/uid.record", "claims/quarantine/", "compute-modes/quarantine/", "events/quarantine/", "faults/quarantine/", "mig-devices/quarantine/", "mig-modes/quarantine/", "node-config/quarantine/", "time-slices/quarantine/")
	must(t, h.Claims.Delete("uid"))
	leave(t, h)
	wantLeft(t, elsewhere)
	wantLeft(t, driver, "agent@")
}

func TestAHomeThatCannotBeWrittenIsAnErrorThatNamesIt(t *testing.T) {
	driver := t.TempDir()
	agent := filepath.Join(driver, "agent")
	for name, make := range map[string]func() error{
		"a file":              func() error { return os.WriteFile(agent, nil, 0o600) },
		"a link to nowhere":   func() error { return os.Symlink(filepath.Join(driver, "none"), agent) },
		"an unwritable place": func() error { return os.Symlink("/proc/self", agent) },
		"records that are none": func() error {
			return errors.Join(os.Mkdir(agent, 0o700), os.WriteFile(filepath.Join(agent, "claims"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, make())
			if _, err := home.Enter(t.Context(), driver, func() {}); err == nil || !strings.Contains(err.Error(), agent) {
				t.Errorf("error %v, want one that names %s", err, agent)
			}
			must(t, os.RemoveAll(agent))
		})
	}
}

// A disk can become read-only under a running agent.
func TestAHomeThatCannotBeRemovedIsAnErrorThatNamesIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	driver := t.TempDir()
	h := enter(t, driver)
	must(t, unix.Mount(driver, driver, "", unix.MS_BIND, ""))
	defer func() {
		if err := unix.Unmount(driver, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	must(t, unix.Mount("", driver, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	require.Error(t, "Leave", h.Leave(nothingElse), unix.EROFS, filepath.Join(driver, "agent/lock"))
}

// Agents start while others leave. Each agent writes a record and installs the hook.
// Both must exist until that agent leaves, and nothing may be left after the last one.
func TestALeavingAgentKeepsTheHomeOfAnotherAgent(t *testing.T) {
	const agents, rounds = 6, 100
	plugins := t.TempDir()
	driver := filepath.Join(plugins, "gpu.nvidia.com")
	hook := program(t)
	var inside atomic.Int32
	round := func(ctx context.Context, agent int) error {
		h, err := home.Enter(ctx, driver, func() {
			if n := inside.Load(); n != 0 {
				t.Errorf("%d agents are there, and one believes to be alone", n)
			}
		})
		if err != nil {
			return err
		}
		inside.Add(1)
		key := fmt.Sprintf("claim-%d", agent)
		path, err := h.InstallHook(hook)
		if err != nil {
			inside.Add(-1)
			return errors.Join(err, h.Close())
		}
		err = errors.Join(os.WriteFile(h.LockFile(), nil, 0o600), h.Claims.Write(key, []byte("held")))
		// What the plugin does in the driver's folder.
		socket := filepath.Join(driver, key+".sock")
		err = errors.Join(err, os.WriteFile(socket, nil, 0o600), os.Remove(socket))
		if _, readErr := h.Claims.Read(key); readErr != nil {
			err = errors.Join(err, readErr)
		}
		if content, readErr := os.ReadFile(path); readErr != nil || string(content) != "hook" {
			err = errors.Join(err, readErr, fmt.Errorf("the hook reads %q", content))
		}
		inside.Add(-1)
		return errors.Join(err, h.Claims.Delete(key), h.Leave(nothingElse))
	}
	var all sync.WaitGroup
	for agent := range agents {
		all.Go(func() {
			for range rounds {
				if err := round(t.Context(), agent); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	wantLeft(t, plugins)
}

func TestTheFirstAndTheLastAgentCallAlone(t *testing.T) {
	driver := t.TempDir()
	var said []string
	enter := func(name string) *home.Home {
		h, err := home.Enter(t.Context(), driver, func() { said = append(said, name) })
		must(t, err)
		return h
	}
	first, second := enter("first"), enter("second")
	leave(t, first)
	require.Same(t, "alone so far", []string{"first"}, said)
	must(t, second.Claims.Write("uid", nil))
	leave(t, second)
	require.Same(t, "alone, though a claim is held", []string{"first", "second"}, said)
}

func TestAHomeThatWasReplacedOrEmptiedIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"removed": {os.RemoveAll, "was replaced"},
		"replaced by an empty one": {func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.MkdirAll(dir, 0o750))
		}, "was replaced"},
		"emptied": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "claims")) }, "records are gone"},
	} {
		t.Run(name, func(t *testing.T) {
			driverDir := filepath.Join(t.TempDir(), "gpu.nvidia.com")
			h, err := home.Enter(t.Context(), driverDir, func() {})
			must(t, err)
			defer h.Close() //nolint:errcheck // it is only a lock
			if err := h.Check(); err != nil {
				t.Fatalf("a home as it was entered: %v", err)
			}
			must(t, c.change(filepath.Join(driverDir, "agent")))
			if err := h.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

var must = require.NoError
