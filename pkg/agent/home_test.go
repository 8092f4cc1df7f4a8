// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// wantNothing fails for every file and folder that the agents have left.
func (n *node) wantNothing(t *testing.T) {
	t.Helper()
	for _, dir := range []string{n.KubeletPluginsDir, n.KubeletRegistryDir, n.CDIDir} {
		if left := files.List(t, dir); len(left) != 0 {
			t.Errorf("left in %s: %q", dir, left)
		}
	}
}

func (n *node) mustStop(t *testing.T, agents ...*running) {
	t.Helper()
	for _, a := range agents {
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	}
}

// abandon makes the socket of a process that has died.
func abandon(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheLastAgentOfANodeLeavesNothingThere(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	n.PodUID = "11111111-old"
	// Agents of other pods die: one before, one while others are there.
	abandon(t, n.driverDir(), "dra-00000000.sock")
	abandon(t, n.KubeletRegistryDir, "gpu.nvidia.com-00000000-reg.sock")
	before := n.start(t)
	if diff := cmp.Diff([]string{"gpu.nvidia.com-11111111-reg.sock"}, files.List(t, n.KubeletRegistryDir)); diff != "" {
		t.Errorf("sockets that the kubelet finds (-want +got):\n%s", diff)
	}
	before.mustPrepare(t, claim)
	before.unprepare(t, claim)
	// A rolling update: the old agent ends while the new one serves. Each has its own
	// kubelet here.
	config := *n.Config
	next := &node{Config: &config, SimState: n.SimState, client: n.client}
	next.PodUID, next.KubeletRegistryDir = "22222222-new", n.KubeletRegistryDir+"2"
	if err := os.Mkdir(next.KubeletRegistryDir, 0o755); err != nil {
		t.Fatal(err)
	}
	after := next.start(t)
	abandon(t, next.KubeletRegistryDir, "gpu.nvidia.com-00000000-reg.sock")
	n.mustStop(t, before)
	after.mustPrepare(t, claim)
	after.unprepare(t, claim)
	n.mustStop(t, after)
	n.wantNothing(t)
	next.wantNothing(t)
}

func TestAClaimThatIsPreparedKeepsWhatTheNextAgentNeeds(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-1b-00")
	record := "agent/claims/uid-one.record"
	for name, change := range map[string]func(t *testing.T, n *node){
		"with its record": func(*testing.T, *node) {},
		"by its CDI spec, where the record is lost": func(t *testing.T, n *node) {
			if err := os.Remove(filepath.Join(n.driverDir(), record)); err != nil {
				t.Fatal(err)
			}
			n.mustStop(t, n.start(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, claim)
			a := n.start(t)
			a.mustPrepare(t, claim)
			n.mustStop(t, a)
			if _, err := os.Stat(filepath.Join(n.driverDir(), record)); err != nil {
				t.Error(err)
			}
			change(t, n)
			if diff := cmp.Diff([]string{"claims", "compute-modes", "events", "faults", "lock", "memory-hooks.sock", "mig-devices", "mig-modes", "node-config", "time-slices"}, files.List(t, filepath.Join(n.driverDir(), "agent"))); diff != "" {
				t.Errorf("the agent's folder (-want +got):\n%s", diff)
			}

			next := n.start(t)
			next.unprepare(t, claim)
			n.mustStop(t, next)
			n.wantNothing(t)
		})
	}
}

func TestAnAgentWithoutAHookSaysWhatToDoAndLeavesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.CDIHook = ""
	hw := n.hardware(t)
	_, err := newAgent(t.Context(), n.Config, hw, n.client)
	if !errors.Is(err, gpu.ErrNotFound) || !strings.Contains(err.Error(), "--cdi-hook=/usr/bin/nvidia-cdi-hook") {
		t.Errorf("error %v, want %v and what to give", err, gpu.ErrNotFound)
	}
	if left := files.List(t, n.KubeletPluginsDir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	var printed strings.Builder
	if err := n.print(t, &printed, t.Output()); err != nil {
		t.Errorf("to print slices takes no hook: %v", err)
	}
}

// The hook comes with the agent's program, and CDI specs name it where the
// container runtime sees it.
func TestTheHookInTheProgramsFolderServesContainersAndGoesWithTheLastAgent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho it runs\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"nvidia-cdi-hook": script, "gpu-memory-hook": script, "gpu-memory-limit": self} {
		installed := filepath.Join(filepath.Dir(self), name)
		if err := os.Symlink(program, installed); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(installed); err != nil {
				t.Error(err)
			}
		})
	}
	claim := claimFor("one", "gpu-1b-00")
	n := newNode(t, claim)
	// Claims that were prepared with memory limits keep their hook.
	n.CDIHook, n.MemoryLimits, n.ReconcileInterval = "", false, 20*time.Millisecond
	a := n.start(t)
	a.mustPrepare(t, claim)
	hook := filepath.Join(n.driverDir(), "agent/nvidia-cdi-hook")
	memoryHooks, err := filepath.Glob(filepath.Join(n.driverDir(), "agent/memory-hook/*/gpu-memory-hook"))
	if err != nil || len(memoryHooks) != 1 {
		t.Fatalf("memory hooks %q, %v", memoryHooks, err)
	}
	for _, hook := range []string{hook, memoryHooks[0]} {
		if err := os.Remove(hook); err != nil {
			t.Fatal(err)
		}
		for _, err := os.Stat(hook); err != nil; _, err = os.Stat(hook) {
			select {
			case <-t.Context().Done():
				t.Fatalf("%s is not installed again", hook)
			case <-time.After(time.Millisecond):
			}
		}
	}
	if said, err := exec.CommandContext(t.Context(), hook).CombinedOutput(); err != nil || string(said) != "it runs\n" {
		t.Errorf("the hook: %v, %q", err, said)
	}
	spec, err := os.ReadFile(filepath.Join(n.CDIDir, "gpu.nvidia.com-claim-uid-one.json"))
	if err != nil {
		t.Fatal(err)
	}
	if named := strings.Count(string(spec), `"path": "`+hook+`"`); named == 0 || named != strings.Count(string(spec), `"hookName"`) {
		t.Errorf("not every hook of the spec is %s:\n%s", hook, spec)
	}
	a.unprepare(t, claim)
	n.mustStop(t, a)
	n.wantNothing(t)
}
