// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	ocispec "github.com/opencontainers/runtime-spec/specs-go"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// limitsModel is a node whose driver limits the memory of containers.
const limitsModel = "dgx-h100-r615"

// limitPeriods is how often an agent with and one without memory limits run.
const limitPeriods = 4

// measureLimits measures the figures of memory limits: the time that they add to the
// prepare of a plain share, and that the hook adds to the start of a container. It does
// nothing on a machine without cgroups of version 2.
func (b *bench) measureLimits(ctx context.Context, f *figures) error {
	root, err := cgroup.Root()
	if errors.Is(err, gpu.ErrNotSupported) {
		progress("no figures of memory limits: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	// The agents alternate, so that both run while the machine is equally busy.
	for i := range 2 * limitPeriods {
		if err := b.measureLimited(ctx, root, i%2 == 1, i == 2*limitPeriods-1, f); err != nil {
			return err
		}
	}
	return nil
}

// measureLimited prepares plain shares with or without memory limits, and runs the hook
// if hook is set.
func (b *bench) measureLimited(ctx context.Context, root string, limited, hook bool, f *figures) error {
	if err := b.deleteSlices(ctx); err != nil {
		return err
	}
	node := filepath.Join(b.dir, "limits-sim")
	if err := harness.CreateNode(ctx, b.bin, node, limitsModel); err != nil {
		return err
	}
	a, err := b.start(ctx, "--driver-root="+node, "--machine-root="+node, "--mps-supervisor=", fmt.Sprintf("--memory-limits=%t", limited))
	if err != nil {
		return err
	}
	defer a.kill()
	devices, err := b.deviceNames(ctx)
	if err != nil {
		return err
	}
	rounds := max(1, b.rounds/limitPeriods)
	progress("preparing and unpreparing a plain share with memory limits: %t, %d times", limited, rounds)
	for range rounds {
		prepare, _, err := b.shareRound(ctx, a, devices[0])
		if err != nil {
			return err
		}
		if limited {
			f.LimitedShare = append(f.LimitedShare, prepare)
		} else {
			f.PlainShare = append(f.PlainShare, prepare)
		}
	}
	if hook {
		if err := b.measureHook(ctx, a, root, devices[0], f); err != nil {
			return err
		}
	}
	return a.stop()
}

// measureHook starts processes in separate cgroups, and limits their memory. A
// container runtime does so for the containers of a share.
func (b *bench) measureHook(ctx context.Context, a *agent, root, device string, f *figures) error {
	claim, err := b.share(ctx, device)
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, claim); err != nil {
		return err
	}
	hook, err := b.memoryHook(string(claim.UID))
	if err != nil {
		return err
	}
	progress("running the memory hook %d times", b.rounds)
	for range b.rounds {
		if err := hookRound(ctx, root, hook, f); err != nil {
			return err
		}
	}
	return b.drop(ctx, a, claim)
}

// memoryHook returns the hook in the CDI spec of a claim.
func (b *bench) memoryHook(claim string) (*specs.Hook, error) {
	files, err := filepath.Glob(filepath.Join(b.cdiDir, "*"+claim+"*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var spec specs.Spec
		if err := json.Unmarshal(text, &spec); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, device := range spec.Devices {
			for _, hook := range device.ContainerEdits.Hooks {
				if strings.Contains(strings.Join(hook.Args, " "), "gpu-memory-hook") {
					return hook, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("claim %s: its CDI spec in %s has no memory hook", claim, b.cdiDir)
}

// hookRound starts a process in a new cgroup and runs the hook for it.
func hookRound(ctx context.Context, root string, hook *specs.Hook, f *figures) (err error) {
	start := time.Now()
	folder, err := os.MkdirTemp(root, "gpu-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(folder)) }()
	group, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer group.Close() //nolint:errcheck // it was only opened
	process := exec.CommandContext(ctx, "sleep", "infinity")
	process.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := process.Start(); err != nil {
		return err
	}
	f.ProcessStart = append(f.ProcessStart, milliseconds(time.Since(start)))
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
	}()

	state, err := json.Marshal(ocispec.State{Version: ocispec.Version, ID: filepath.Base(folder), Status: ocispec.StateCreating, Pid: process.Process.Pid})
	if err != nil {
		return err
	}
	hooked, err := runHook(ctx, hook, state)
	if err != nil {
		return err
	}
	// As if the agent were away.
	withoutAgent, err := runHook(ctx, hook, state, "--agent", "")
	if err != nil {
		return err
	}
	f.Hook, f.HookWithoutAgent = append(f.Hook, hooked), append(f.HookWithoutAgent, withoutAgent)
	return nil
}

// runHook runs the hook with the state of a container, and returns the time in milliseconds.
// The last of two flags of a name counts.
func runHook(ctx context.Context, hook *specs.Hook, state []byte, flags ...string) (float64, error) {
	end := slices.Index(hook.Args, "--")
	if end < 0 {
		return 0, fmt.Errorf("the memory hook has no program for the call: %q", hook.Args)
	}
	command := exec.CommandContext(ctx, hook.Path, slices.Concat(hook.Args[1:end], flags, hook.Args[end:])...)
	command.Args[0], command.Env, command.Stdin = hook.Args[0], append([]string{}, hook.Env...), bytes.NewReader(state)
	var out []byte
	ms, err := took(func() (err error) {
		out, err = command.CombinedOutput()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("the memory hook: %w: %s", err, out)
	}
	return ms, nil
}
