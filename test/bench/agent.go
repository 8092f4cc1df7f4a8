// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin/kubelettest"
)

// agent is a running gpu-kubelet-plugin. It is registered with the bench, which acts
// as the kubelet.
type agent struct {
	cmd     *exec.Cmd
	log     *bytes.Buffer
	kubelet *kubelettest.Plugin
}

// start starts the agent with additional flags, and waits until its slices are
// published. It returns the time until then.
func (b *bench) start(ctx context.Context, flags ...string) (*agent, time.Duration, error) {
	return b.startCommand(ctx, b.agentCommand(flags...))
}

// agentCommand returns the command of our agent.
func (b *bench) agentCommand(flags ...string) []string {
	return append([]string{
		filepath.Join(b.bin, "gpu-kubelet-plugin"),
		"--driver-root=" + b.root,
		"--machine-root=" + b.root,
		"--node-name=" + b.node,
		"--kubeconfig=" + b.kubeconfig,
		"--kubelet-plugins-dir=" + filepath.Join(b.dir, "plugins"),
		"--kubelet-registry-dir=" + filepath.Join(b.dir, "registry"),
		"--cdi-dir=" + b.cdiDir,
		"--cdi-hook=" + filepath.Join(b.bin, "nvidia-cdi-hook"),
		"--http-listen=",
	}, flags...)
}

// startCommand is start for the command of any driver of our name.
func (b *bench) startCommand(ctx context.Context, args []string) (_ *agent, published time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the agent has published nothing in a minute"))
	defer cancel()
	watcher, err := b.client.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node})
	if err != nil {
		return nil, 0, err
	}
	defer watcher.Stop()

	a := &agent{log: &bytes.Buffer{}}
	//nolint:noctx // the agent outlives this function and is ended by a signal
	a.cmd = exec.Command(args[0], args[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if b.group != "" {
		group, err := os.Open(b.group)
		if err != nil {
			return nil, 0, err
		}
		defer group.Close() //nolint:errcheck // it was only opened
		a.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	}
	start := time.Now()
	if err := a.cmd.Start(); err != nil {
		return nil, 0, fmt.Errorf("start the agent: %w", err)
	}
	defer func() {
		if err != nil {
			a.kill()
			err = fmt.Errorf("%w; the agent said:\n%s", err, a.log)
		}
	}()
	if a.kubelet, err = kubelettest.Register(ctx, filepath.Join(b.dir, "registry")); err != nil {
		return nil, 0, err
	}
	seen := map[string]bool{}
	for event := range watcher.ResultChan() {
		slice, ok := event.Object.(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		if seen[slice.Name] = true; len(seen) == int(slice.Spec.Pool.ResourceSliceCount) {
			published = time.Since(start)
			break
		}
	}
	if published == 0 {
		return nil, 0, context.Cause(ctx)
	}
	return a, published, nil
}

// prepare prepares a claim and returns the time that it took.
func (a *agent) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (time.Duration, error) {
	start := time.Now()
	results, err := a.kubelet.Prepare(ctx, claim)
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	if result := results[string(claim.UID)]; result == nil || result.Error != "" || len(result.Devices) == 0 {
		return 0, fmt.Errorf("claim %s is not prepared: %v", claim.Name, result)
	}
	return took, nil
}

// resident returns the agent's resident memory in bytes.
func (a *agent) resident() (int64, error) {
	process, err := procfs.NewProc(a.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return int64(stat.ResidentMemory()), err
}

// stop ends the agent as the kubelet does.
func (a *agent) stop() error {
	errs := []error{a.kubelet.Close(), a.cmd.Process.Signal(syscall.SIGTERM)}
	if err := a.cmd.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("the agent ended with %w:\n%s", err, a.log))
	}
	return errors.Join(errs...)
}

// kill ends the agent at once. It does nothing if the agent has ended.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}
