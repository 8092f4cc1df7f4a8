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

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/kubelet/kubelettest"
)

// agent is a running gpu-kubelet-plugin. It is registered with the bench, which acts
// as the kubelet.
type agent struct {
	cmd     *exec.Cmd
	kubelet *kubelettest.Plugin
	// log may be read after ended is closed.
	log *bytes.Buffer
	// ended is closed when the process has ended with err.
	ended chan struct{}
	err   error
}

// start starts our agent with additional flags, and waits until its slices are published.
func (b *bench) start(ctx context.Context, flags ...string) (*agent, error) {
	a, _, err := b.startCommand(ctx, b.agentCommand(b.program(), flags...))
	if err != nil {
		return nil, fmt.Errorf("our agent: %w", err)
	}
	return a, nil
}

// program is the path of our agent.
func (b *bench) program() string { return filepath.Join(b.bin, "gpu-kubelet-plugin") }

// agentCommand returns the command of an agent, ours or that of another commit.
func (b *bench) agentCommand(program string, flags ...string) []string {
	return append([]string{
		program,
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

// startCommand starts a driver, and waits until its slices are published. It returns the
// time until then in milliseconds. The errors have the end of its output.
func (b *bench) startCommand(ctx context.Context, args []string) (_ *agent, published float64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it has published nothing in a minute"))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	watcher, err := b.client.ResourceV1().ResourceSlices().Watch(ctx, b.ofNode())
	if err != nil {
		return nil, 0, err
	}
	defer watcher.Stop()

	a := &agent{log: &bytes.Buffer{}, ended: make(chan struct{})}
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
		return nil, 0, fmt.Errorf("start: %w", err)
	}
	go func() {
		a.err = a.cmd.Wait()
		close(a.ended)
		giveUp(fmt.Errorf("it ended before it published anything (%s)", a.cmd.ProcessState))
	}()
	defer func() {
		if err != nil {
			err = a.failed(err)
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
			return a, milliseconds(time.Since(start)), nil
		}
	}
	return nil, 0, context.Cause(ctx)
}

// ofNode selects the slices of the node.
func (b *bench) ofNode() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node}
}

// prepare prepares a claim.
func (a *agent) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	results, err := a.kubelet.Prepare(ctx, claim)
	if err != nil {
		return err
	}
	if result := results[string(claim.UID)]; result == nil || result.Error != "" || len(result.Devices) == 0 {
		return fmt.Errorf("claim %s is not prepared: %v", claim.Name, result)
	}
	return nil
}

// stop ends the agent as the kubelet does.
func (a *agent) stop() error {
	errs := []error{a.kubelet.Close(), a.cmd.Process.Signal(syscall.SIGTERM)}
	if <-a.ended; a.err != nil {
		errs = append(errs, fmt.Errorf("the agent ended with %w:\n%s", a.err, a.log))
	}
	return errors.Join(errs...)
}

// kill ends the agent at once. It does nothing if the agent has ended.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.ended
}

// failed ends the agent, and adds the end of its output to an error.
func (a *agent) failed(err error) error {
	a.kill()
	said := a.log.Bytes()
	return fmt.Errorf("%w; it said:\n%s", err, said[max(0, len(said)-4000):])
}
