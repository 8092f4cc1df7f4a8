package supervisor

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// firstBackoff is waited before the second start in a row, and twice as long
	// before each further one. A daemon that was well is started anew at once:
	// its clients wait.
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	// probeFailures in a row make a daemon one that hangs.
	probeFailures = 3
)

// keep has the daemon started, and started anew whenever it ends, until it is
// stopped or the supervisor ends.
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
			case <-d.gone:
				return
			case <-s.ctx.Done():
				return
			}
		}
		if !s.pause(d) || d.take(s.ctx) != nil {
			return
		}
		if d.isGone() {
			d.release()
			return
		}
		// Somebody who asked for it may have started it meanwhile.
		if !d.current().alive() {
			s.revive(d)
		}
		d.release()
	}
}

// pause waits as long as the daemon's last starts suggest, and reports whether
// it is still to be started.
func (s *Supervisor) pause(d *daemon) bool {
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

// revive brings a daemon back that is not there. Its turn is the caller's.
func (s *Supervisor) revive(d *daemon) {
	d.mu.Lock()
	d.process.letGo()
	d.process, d.settled = nil, false
	d.attempt++
	d.status.State = gpu.MPSStarting
	d.mu.Unlock()
	if err := d.bring(s.ctx); err != nil {
		klog.FromContext(s.ctx).Error(err, "MPS daemon is not as it is to be", "device", d.name())
	}
}

// probeAll asks the daemons now and then whether they are well, and bounds their
// logs.
func (s *Supervisor) probeAll() {
	ticker := s.options.Clock.NewTicker(s.options.ProbeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			for _, d := range s.all() {
				if err := s.options.boundLogs(s.ctx, d.folders); err != nil {
					klog.FromContext(s.ctx).Error(err, "Logs of an MPS daemon cannot be bounded", "device", d.name())
				}
				s.work.Go(func() { s.probe(d) })
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// probe asks a daemon whether it is well, and ends one that hangs, so that it is
// started anew. Its servers, which have clients, are left alone.
func (s *Supervisor) probe(d *daemon) {
	p := d.current()
	if d.look().State != gpu.MPSReady {
		return
	}
	var err error
	for range probeFailures {
		if _, err = d.options.servers(s.ctx, d.folders); err == nil {
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
			d.doubt(err.Error())
			return
		}
	}
	klog.FromContext(s.ctx).Info("MPS daemon hangs and is ended", "device", d.name(), "pid", p.pid, "err", err)
	d.fail("it hangs: " + err.Error())
	if err := p.kill(s.ctx); err != nil {
		klog.FromContext(s.ctx).Error(err, "MPS daemon that hangs cannot be ended", "device", d.name(), "pid", p.pid)
	}
}
