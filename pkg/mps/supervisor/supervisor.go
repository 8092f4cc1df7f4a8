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

	"github.com/gpu-dra/gpu-dra-driver/pkg/folder"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Supervisor owns the control daemons of a node: it starts, asks, changes and
// stops them as it is told, and starts anew those that die or hang. They live
// on when it ends, and the next one adopts them.
type Supervisor struct {
	options Options
	lock    *folder.Lock // of the run directory

	stop context.CancelFunc // of what is done unasked
	ctx  context.Context
	work sync.WaitGroup

	mu      sync.Mutex
	daemons map[string]*daemon
	// leaving: there is no daemon, and will be none.
	leaving bool
}

// New is the supervisor of a run directory, which nobody else can be until it
// is closed or has left: [gpu.ErrInUse] otherwise. Daemons that a supervisor before it
// started are adopted, and started anew if they have died, while it serves
// already.
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

// Close ends what the supervisor does. The daemons live on.
func (s *Supervisor) Close() error {
	s.end()
	return s.lock.Close()
}

func (s *Supervisor) end() {
	s.stop()
	s.work.Wait()
	for _, d := range s.all() {
		d.current().letGo()
	}
}

// load finds the daemons that there are to be.
func (s *Supervisor) load() error {
	dir := s.options.daemons()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if err := validateName(name); err != nil {
			klog.FromContext(s.ctx).Error(err, "A folder among those of the MPS daemons is not one of ours and is left alone", "path", filepath.Join(dir, name))
			continue
		}
		d := newDaemon(&s.options, name)
		s.daemons[name] = d
		r, err := readRecord(d.folders.record(), name)
		if err != nil {
			// What it is to be is not known, so it is neither started nor ended
			// before somebody says so.
			klog.FromContext(s.ctx).Error(err, "MPS daemon without a readable record is left alone until it is asked for or stopped", "device", name)
			d.fail(err.Error())
			continue
		}
		d.status.Daemon, d.had, d.status.Restarts = r.Daemon, r.Had, r.Restarts
		s.keep(d)
	}
	return nil
}

// EnsureMPS starts a daemon and waits until it answers, or changes the ceilings
// of the one that runs, also for clients that connect to its servers from now
// on. The same again changes nothing, and asks a daemon that has not answered of
// late whether it is well. A daemon that does not come up leaves nothing behind.
func (s *Supervisor) EnsureMPS(ctx context.Context, want gpu.MPSDaemon) (gpu.MPSDirs, error) {
	if err := cmp.Or(validate(want), s.options.folders(want.Name).check()); err != nil {
		return gpu.MPSDirs{}, err
	}
	d, err := s.take(ctx, want.Name)
	if err != nil {
		return gpu.MPSDirs{}, err
	}
	defer d.release()
	err = d.ensure(ctx, want)
	if err == nil {
		s.keep(d)
		return d.folders.clients(), nil
	}
	if d.current().alive() {
		s.keep(d) // adopted, whatever else
	}
	// One that runs for other devices, of which no record told, is for whoever
	// knows its claims to stop.
	if !s.isKept(d) && !errors.Is(err, gpu.ErrInUse) {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.StartTimeout)
		defer cancel()
		return gpu.MPSDirs{}, errors.Join(err, s.remove(end, d))
	}
	if d.hangs(err) {
		// It is ended now if it goes on so, and not at the next interval.
		s.work.Go(func() { s.probe(d) })
	}
	return gpu.MPSDirs{}, err
}

// StopMPS ends a daemon with its servers and removes its folders, but not its
// logs. One that is not there is no error.
func (s *Supervisor) StopMPS(ctx context.Context, name string) error {
	if err := validateName(name); err != nil {
		return err
	}
	d, err := s.take(ctx, name)
	if err != nil {
		return err
	}
	defer d.release()
	return s.remove(ctx, d)
}

// MPSDaemons looks at every daemon, sorted by name, and asks those that are
// ready for their servers.
func (s *Supervisor) MPSDaemons(ctx context.Context) ([]gpu.MPSStatus, error) {
	all := s.all()
	statuses := make([]gpu.MPSStatus, len(all))
	var asked sync.WaitGroup
	for i, d := range all {
		asked.Go(func() {
			status := d.look()
			if status.State == gpu.MPSReady {
				var err error
				if status.Servers, err = d.options.look(ctx, d.folders); err != nil {
					status.Problem = err.Error()
				} else {
					status.Problem = d.answered()
				}
			}
			statuses[i] = status
		})
	}
	asked.Wait()
	return statuses, ctx.Err()
}

// all daemons, sorted by name.
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

// take gives the daemon of that name, known or not, and one's turn at it.
func (s *Supervisor) take(ctx context.Context, name string) (*daemon, error) {
	for {
		d, fresh, err := s.find(name)
		if fresh || err != nil {
			return d, err
		}
		if err := d.take(ctx); err != nil {
			return nil, err
		}
		if !d.isGone() {
			return d, nil
		}
		d.release()
	}
}

// find gives the daemon of that name. Of a fresh one the caller has the turn:
// whoever enters it removes it again if it comes to nothing.
func (s *Supervisor) find(name string) (d *daemon, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return nil, false, fmt.Errorf("MPS daemon %s: %w: this supervisor ends; try the next one", name, gpu.ErrNotReady)
	}
	d, known := s.daemons[name]
	if !known {
		d = newDaemon(&s.options, name)
		d.turn <- struct{}{}
		s.daemons[name] = d
	}
	return d, !known, nil
}

// remove stops a daemon and forgets it. Its turn is the caller's.
func (s *Supervisor) remove(ctx context.Context, d *daemon) error {
	if _, err := os.Stat(d.folders.dir); !errors.Is(err, fs.ErrNotExist) {
		if err := d.stop(ctx); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("MPS daemon stopped", "device", d.name())
	}
	close(d.gone)
	d.current().letGo()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemons, d.name())
	return nil
}
