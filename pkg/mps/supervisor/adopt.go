// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// adoptOrStart adopts the running daemon, or starts one.
func (d *daemon) adoptOrStart(ctx context.Context) error {
	_, err := os.Stat(d.folders.pipe)
	if first := errors.Is(err, fs.ErrNotExist); first {
		err = d.start(ctx)
	} else {
		err = d.adoptOrRestart(ctx)
	}
	if err != nil {
		if !d.current().alive() {
			d.fail(err.Error())
		}
		return fmt.Errorf("start MPS daemon %s: %w", d.name(), err)
	}
	return nil
}

// adoptOrRestart does so for a daemon that has run before.
func (d *daemon) adoptOrRestart(ctx context.Context) error {
	if adopted, err := d.adopt(ctx); err != nil || adopted {
		return err
	}
	if err := d.noteRestart(); err != nil {
		return err
	}
	return d.start(ctx)
}

// noteRestart records that the daemon is started again. A daemon that this supervisor has never
// reached ended before.
func (d *daemon) noteRestart() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Restarts++
	if d.lastAnswer.IsZero() && d.attempt <= 1 {
		d.noteInterruption()
	}
	return d.writeRecord()
}

// adopt takes over a daemon that an earlier supervisor started, and reports whether it
// did. It kills a daemon that hangs, but not its servers, which have clients. If a
// daemon refuses its settings, it takes over the daemon unchanged and returns the
// error.
func (d *daemon) adopt(ctx context.Context) (bool, error) {
	p, err := d.options.findDaemon(d.folders.log)
	if p == nil || err != nil {
		return false, err
	}
	want := d.snapshot().Daemon
	if !p.matches(func(pid int) bool { return hasVariable(pid, devicesVariable+strings.Join(want.Devices, ",")) }) {
		defer p.stopFollowing()
		if p.hasEnded() {
			return false, nil
		}
		return false, fmt.Errorf("%w: process %d is this daemon for other devices than %s: stop it first", gpu.ErrInUse, p.pid, strings.Join(want.Devices, ", "))
	}
	if p.matches(hasProtocol3) != want.HasNamespaces() {
		defer p.stopFollowing()
		if p.hasEnded() {
			return false, nil
		}
		return false, fmt.Errorf("%w: process %d is this daemon with another protocol than %s: stop it first", gpu.ErrInUse, p.pid, protocolOf(want))
	}
	d.mu.Lock()
	had := d.had
	d.mu.Unlock()
	err = d.apply(ctx, had, gpu.MPSDaemon{}, want)
	switch {
	case err == nil:
		d.mu.Lock()
		d.process = p
		d.mu.Unlock()
		d.setReady(ctx, "MPS daemon adopted")
		return true, nil
	case errors.Is(err, gpu.ErrNotSupported):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.process, d.lastAnswer = p, d.options.Clock.Now()
		d.status.State, d.status.Problem = gpu.MPSReady, err.Error()
		return true, fmt.Errorf("it goes on with the settings that it has: %w", err)
	case ctx.Err() != nil || !d.hangs(err):
		p.stopFollowing()
		return false, err // the state of the daemon is unknown
	}
	klog.FromContext(ctx).Info("MPS daemon of an earlier supervisor hangs, killing it", "device", d.name(), "pid", p.pid, "err", err)
	defer p.stopFollowing()
	return false, p.kill(ctx)
}
