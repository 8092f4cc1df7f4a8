// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// firstBackoff is the delay before the second start in a row, and doubles with
	// each further one. A daemon that answered is restarted at once: its clients
	// wait.
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	// probeFailures is the number of failures in a row after which a daemon counts as
	// hanging.
	probeFailures = 3
)

// keep starts the daemon, and restarts it whenever it ends, until it is stopped or the
// supervisor ends.
func (s *Supervisor) keep(d *daemon) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.kept {
		d.kept = true
		s.work.Go(func() { s.keepAlive(d) })
	}
}

func (s *Supervisor) isKept(d *daemon) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept
}

func (s *Supervisor) keepAlive(d *daemon) {
	for {
		p := d.current()
		if p != nil && p.alive() {
			select {
			case <-p.ended:
				klog.FromContext(s.ctx).Info("MPS daemon has ended", "device", d.name(), "pid", p.pid)
				d.mu.Lock()
				d.noteInterruption()
				d.mu.Unlock()
			case <-d.gone:
				return
			case <-s.ctx.Done():
				return
			}
		}
		if !s.waitBackoff(d) || d.acquire(s.ctx) != nil {
			return
		}
		if d.isGone() {
			d.release()
			return
		}
		// A call may have started it meanwhile.
		if !d.current().alive() {
			s.restart(d)
		}
		d.release()
	}
}

// waitBackoff waits for the back-off after the latest starts, and reports whether the
// daemon must still be started.
func (s *Supervisor) waitBackoff(d *daemon) bool {
	d.mu.Lock()
	attempt := d.attempt
	d.mu.Unlock()
	if attempt == 0 {
		return true
	}
	timer := s.options.Clock.NewTimer(min(firstBackoff<<min(attempt-1, 16), lastBackoff))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-d.gone:
		return false
	case <-s.ctx.Done():
		return false
	}
}

// restart starts a daemon that has ended. The caller holds its lock.
func (s *Supervisor) restart(d *daemon) {
	d.mu.Lock()
	d.process.stopFollowing()
	d.process, d.configured = nil, false
	d.log, d.status.Waiting = controlLog{offset: d.log.offset}, nil
	d.attempt++
	d.status.State = gpu.MPSStarting
	d.mu.Unlock()
	if err := d.adoptOrStart(s.ctx); err != nil {
		klog.FromContext(s.ctx).Error(err, "Cannot restart MPS daemon, will retry", "device", d.name())
	}
}

// probeAll probes the daemons and limits their logs at each interval.
func (s *Supervisor) probeAll() {
	ticker := s.options.Clock.NewTicker(s.options.ProbeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			for _, d := range s.all() {
				if err := s.options.boundLogs(s.ctx, d.folders); err != nil {
					klog.FromContext(s.ctx).Error(err, "Cannot limit the logs of an MPS daemon", "device", d.name())
				}
				s.work.Go(func() { s.probe(d) })
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// probe checks that a daemon answers, and kills one that hangs, so that it is restarted.
// It leaves the servers alone, which have clients.
func (s *Supervisor) probe(d *daemon) {
	p := d.current()
	if d.snapshot().State != gpu.MPSReady {
		return
	}
	var err error
	for range probeFailures {
		if err = d.queryServers(s.ctx); err == nil {
			d.answered()
			d.mu.Lock()
			d.attempt = 0
			d.mu.Unlock()
			return
		}
		if !p.alive() || s.ctx.Err() != nil {
			return
		}
		if !d.hangs(err) {
			d.noteProblem(err.Error())
			return
		}
	}
	klog.FromContext(s.ctx).Info("MPS daemon hangs, killing it", "device", d.name(), "pid", p.pid, "err", err)
	d.fail("it hangs: " + err.Error())
	if err := p.kill(s.ctx); err != nil {
		klog.FromContext(s.ctx).Error(err, "Cannot kill an MPS daemon that hangs", "device", d.name(), "pid", p.pid)
	}
}
