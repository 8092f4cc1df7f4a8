// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Supervisor runs the control daemons of a node: it starts, queries, changes and stops
// them on request, and restarts a daemon that dies or hangs. The daemons keep running when
// it ends, and the next supervisor adopts them.
type Supervisor struct {
	options Options
	lock    *folder.Lock // of the run directory

	stop context.CancelFunc // cancels ctx
	// ctx is the context of work that no call waits for.
	ctx  context.Context
	work sync.WaitGroup

	mu      sync.Mutex
	daemons map[string]*daemon
	// leaving is set if the supervisor ends and accepts no new daemon.
	leaving bool
}

// New returns the supervisor of a run directory. The error wraps [gpu.ErrInUse] if the
// directory has another one that is neither closed nor has left. While it serves
// already, the supervisor adopts the daemons of an earlier one, and restarts daemons
// that have died.
func New(ctx context.Context, options Options) (*Supervisor, error) {
	s := &Supervisor{options: options.withDefaults(), daemons: map[string]*daemon{}}
	if err := s.options.checkFollow(); err != nil {
		return nil, err
	}
	var alone bool
	var err error
	if s.lock, alone, err = folder.Own(s.options.RunDir, runMode); err != nil {
		return nil, err
	}
	if !alone {
		return nil, fmt.Errorf("%s: %w: another gpu-mps-supervisor has this run directory", s.options.RunDir, gpu.ErrInUse)
	}
	for dir, mode := range map[string]fs.FileMode{s.options.RunDir: runMode, s.options.daemons(): runMode, s.options.LogDir: 0o700} {
		if err := makeDir(dir, mode); err != nil {
			return nil, errors.Join(err, s.lock.Close())
		}
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.work.Go(s.probeAll)
	return s, nil
}

// Close ends the supervisor. The daemons keep running.
func (s *Supervisor) Close() error {
	s.end()
	return s.lock.Close()
}

func (s *Supervisor) end() {
	s.stop()
	s.work.Wait()
	for _, d := range s.all() {
		d.current().stopFollowing()
	}
}

// load reads the records of an earlier supervisor's daemons and keeps them running.
func (s *Supervisor) load() error {
	dir := s.options.daemons()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if err := validateName(name); err != nil {
			klog.FromContext(s.ctx).Error(err, "Ignoring unknown folder among MPS daemons", "path", filepath.Join(dir, name))
			continue
		}
		d := newDaemon(&s.options, name)
		s.daemons[name] = d
		r, err := readRecord(d.folders.record(), name)
		if err != nil {
			// Its settings are unknown, so it is neither started nor stopped before
			// the agent calls.
			klog.FromContext(s.ctx).Error(err, "Cannot read the record of an MPS daemon, leaving it alone", "device", name)
			d.fail(err.Error())
			continue
		}
		d.status.Daemon, d.had, d.status.Restarts, d.status.Interrupted = r.Daemon, r.Had, r.Restarts, r.Interrupted
		s.keep(d)
	}
	return nil
}

// MultiUser reports whether the daemons serve clients of several users at a time.
func (s *Supervisor) MultiUser(context.Context) (bool, error) { return s.options.MultiUser, nil }

// Namespaces reports whether the driver lets daemons have namespaces.
func (s *Supervisor) Namespaces(ctx context.Context) (bool, error) {
	return s.options.hasNamespaces(ctx)
}

// EnsureMPS starts a daemon and waits until it answers. If the daemon runs, EnsureMPS
// changes its ceilings or namespaces, also for new clients of its running servers. If
// nothing changes, it only checks that the daemon answers, unless it did so recently. It
// removes a daemon that does not come up.
func (s *Supervisor) EnsureMPS(ctx context.Context, want gpu.MPSDaemon) (gpu.MPSDirs, error) {
	if err := cmp.Or(validate(want), s.options.folders(want.Name).check(want)); err != nil {
		return gpu.MPSDirs{}, err
	}
	d, err := s.acquire(ctx, want.Name)
	if err != nil {
		return gpu.MPSDirs{}, err
	}
	defer d.release()
	err = d.ensure(ctx, want)
	if err == nil {
		s.keep(d)
		return d.folders.clients(want), nil
	}
	if d.current().alive() {
		s.keep(d) // it was adopted, even if with an error
	}
	// A daemon that serves other devices and has no record must be stopped by the
	// agent, which knows its claims.
	if !s.isKept(d) && !errors.Is(err, gpu.ErrInUse) {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.StartTimeout)
		defer cancel()
		return gpu.MPSDirs{}, errors.Join(err, s.remove(end, d))
	}
	if d.hangs(err) {
		// Do not wait for the next interval to kill it.
		s.work.Go(func() { s.probe(d) })
	}
	return gpu.MPSDirs{}, err
}

// StopMPS ends a daemon with its servers and removes its folders, but not its logs. It
// succeeds if the daemon does not exist.
func (s *Supervisor) StopMPS(ctx context.Context, name string) error {
	if err := validateName(name); err != nil {
		return err
	}
	d, err := s.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer d.release()
	return s.remove(ctx, d)
}

// MPSDaemons returns the status of every daemon, sorted by name. If requested, that includes the
// servers of daemons that are ready. Without servers it waits for no daemon.
func (s *Supervisor) MPSDaemons(ctx context.Context, servers bool) ([]gpu.MPSStatus, error) {
	all := s.all()
	statuses := make([]gpu.MPSStatus, len(all))
	var queries sync.WaitGroup
	for i, d := range all {
		queries.Go(func() {
			if err := d.followLog(); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot read the log of an MPS daemon, will retry", "device", d.name())
			}
			status := d.snapshot()
			if servers && status.State == gpu.MPSReady {
				var err error
				if status.Servers, err = d.serverStatuses(ctx); err != nil {
					status.Problem = err.Error()
				} else {
					status.Problem = d.answered()
				}
			}
			statuses[i] = status
		})
	}
	queries.Wait()
	return statuses, ctx.Err()
}

// all returns all daemons, sorted by name.
func (s *Supervisor) all() []*daemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*daemon
	for _, d := range s.daemons {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *daemon) int { return cmp.Compare(a.folders.dir, b.folders.dir) })
	return all
}

// acquire returns the daemon of the name, which it creates if it is unknown, and holds its
// lock.
func (s *Supervisor) acquire(ctx context.Context, name string) (*daemon, error) {
	for {
		d, fresh, err := s.find(name)
		if fresh || err != nil {
			return d, err
		}
		if err := d.acquire(ctx); err != nil {
			return nil, err
		}
		if !d.isGone() {
			return d, nil
		}
		d.release()
	}
}

// find returns the daemon of the name. If it is fresh, the caller holds its lock, and must
// remove it again if it does not start.
func (s *Supervisor) find(name string) (d *daemon, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return nil, false, fmt.Errorf("MPS daemon %s: %w: this supervisor ends; try the next one", name, gpu.ErrNotReady)
	}
	d, known := s.daemons[name]
	if !known {
		d = newDaemon(&s.options, name)
		d.changing <- struct{}{}
		s.daemons[name] = d
	}
	return d, !known, nil
}

// remove stops a daemon and forgets it. The caller holds its lock.
func (s *Supervisor) remove(ctx context.Context, d *daemon) error {
	if _, err := os.Stat(d.folders.dir); !errors.Is(err, fs.ErrNotExist) {
		if err := d.stop(ctx); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("MPS daemon stopped", "device", d.name())
	}
	close(d.gone)
	d.current().stopFollowing()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemons, d.name())
	return nil
}
