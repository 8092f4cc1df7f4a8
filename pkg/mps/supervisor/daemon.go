// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// daemon is one control daemon and its desired settings.
//
//	      ensure                    answers
//	absent ────▶ Starting ───────────────────────▶ Ready
//	   ▲            ▲  │ does not come up            │ dies, or is killed for
//	   │ stop       │  ▼                             │ not answering
//	   └────────── Failed ◀──────────────────────────┘
//
// A daemon that has never been ready is absent again if it does not come up; any other
// is restarted until it is stopped.
type daemon struct {
	options *Options
	folders folders
	// changing is a lock: it holds a value while a goroutine starts, changes or stops
	// the daemon.
	changing chan struct{}
	// gone is closed when the daemon is stopped and removed.
	gone chan struct{}

	mu         sync.Mutex
	status     gpu.MPSStatus // without servers
	had        gpu.MPSDaemon // the highest ceilings that were ever requested
	process    *process      // nil, or one that may have ended
	configured bool          // it has the desired settings
	lastAnswer time.Time
	log        controlLog
	kept       bool // a goroutine restarts it
	attempt    int  // starts since it last answered a probe
}

func newDaemon(o *Options, name string) *daemon {
	return &daemon{
		options:  o,
		folders:  o.folders(name),
		changing: make(chan struct{}, 1),
		gone:     make(chan struct{}),
		status:   gpu.MPSStatus{Daemon: gpu.MPSDaemon{Name: name}, State: gpu.MPSStarting},
	}
}

// acquire waits for the lock.
func (d *daemon) acquire(ctx context.Context) error {
	select {
	case d.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("MPS daemon %s: %w: another change of it is under way", d.name(), ctx.Err())
	}
}

func (d *daemon) release() { <-d.changing }

func (d *daemon) isGone() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

func (d *daemon) name() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status.Daemon.Name
}

// current returns the latest process; nil before the first.
func (d *daemon) current() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

func (d *daemon) snapshot() gpu.MPSStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := d.status
	if d.process.alive() {
		status.PID = d.process.pid
	} else if status.State == gpu.MPSReady {
		status.State, status.Problem = gpu.MPSFailed, "it has ended"
	}
	return status
}

// ensure starts or changes the daemon so that it is as wanted. The caller holds its lock.
func (d *daemon) ensure(ctx context.Context, want gpu.MPSDaemon) error {
	d.mu.Lock()
	before, had, running, configured := d.status.Daemon, d.had, d.process.alive(), d.configured
	done := running && configured && d.status.State == gpu.MPSReady && same(before, want)
	lastAnswer := d.lastAnswer
	d.mu.Unlock()
	if done && d.options.Clock.Since(lastAnswer) < d.options.AnswerAge {
		return nil
	}
	if done {
		return d.checkAnswers(ctx)
	}
	if running && !slices.Equal(before.Devices, want.Devices) {
		return fmt.Errorf("MPS daemon %s: %w: it runs on %s and cannot move to %s: stop it first",
			want.Name, gpu.ErrInUse, strings.Join(before.Devices, ", "), strings.Join(want.Devices, ", "))
	}
	if running && before.HasNamespaces() != want.HasNamespaces() {
		return fmt.Errorf("MPS daemon %s: %w: it runs with %s and cannot change to %s: stop it first", want.Name, gpu.ErrInUse, protocolOf(before), protocolOf(want))
	}
	if err := d.recordIntent(want); err != nil {
		return fmt.Errorf("MPS daemon %s: %w", want.Name, err)
	}
	if !running {
		return d.adoptOrStart(ctx)
	}
	if !configured {
		before = gpu.MPSDaemon{} // its settings may have been applied in part
	}
	if err := d.apply(ctx, had, before, want); err != nil {
		return fmt.Errorf("change the ceilings of MPS daemon %s: %w", want.Name, err)
	}
	d.setReady(ctx, "MPS daemon has new ceilings")
	return nil
}

// apply changes the settings of the running daemon. had are the highest ceilings that
// were requested before, and before the settings that it has; the zero value if they are
// not known.
func (d *daemon) apply(ctx context.Context, had, before, want gpu.MPSDaemon) error {
	if want.HasNamespaces() {
		return d.options.applyNamespaces(ctx, d.folders, before.Namespaces, want.Namespaces)
	}
	return d.options.apply(ctx, d.folders, settings(had, want))
}

// queryServers returns an error if the daemon does not answer, or lacks its server. It also
// does if a folder of its clients is missing.
func (d *daemon) queryServers(ctx context.Context) error {
	if err := d.checkFolders(); err != nil {
		return err
	}
	if d.snapshot().Daemon.HasNamespaces() {
		_, _, err := d.options.namedServer(ctx, d.folders)
		return err
	}
	_, err := d.options.servers(ctx, d.folders)
	return err
}

func (d *daemon) serverStatuses(ctx context.Context) ([]gpu.MPSServer, error) {
	if d.snapshot().Daemon.HasNamespaces() {
		return d.options.namedServerStatus(ctx, d.folders)
	}
	return d.options.serverStatuses(ctx, d.folders)
}

// checkAnswers returns an error if the daemon does not answer. Without a daemon, clients
// would run without limits.
func (d *daemon) checkAnswers(ctx context.Context) error {
	if err := d.queryServers(ctx); err != nil {
		return fmt.Errorf("query MPS daemon %s: %w", d.name(), err)
	}
	d.answered()
	return nil
}

// answered records the time of an answer and returns the problem that remains.
func (d *daemon) answered() (problem string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastAnswer = d.options.Clock.Now()
	if d.status.State == gpu.MPSReady && d.configured {
		d.status.Problem = ""
	}
	return d.status.Problem
}

// noteProblem records a problem of a daemon that is still considered ready.
func (d *daemon) noteProblem(problem string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.status.State == gpu.MPSReady && d.configured {
		d.status.Problem = problem
	}
}

// hangs reports whether the error of a command means that the daemon must be restarted:
// it did not answer in time, its socket or a folder is missing, or a named server has ended.
// Any other failure may be one of the command line, as during an installation of the driver.
func (d *daemon) hangs(err error) bool {
	if errors.Is(err, gpu.ErrTimeout) || errors.Is(err, errNoServer) || errors.Is(err, errNoFolder) {
		return true
	}
	return errors.Is(err, gpu.ErrNotReady) && !errors.Is(err, errNotRun) && !d.hasSocket()
}

// hasSocket reports whether its socket may exist.
func (d *daemon) hasSocket() bool {
	err := d.options.inNamespace(func() error {
		_, err := os.Lstat(d.folders.socket())
		return err
	})
	return !errors.Is(err, fs.ErrNotExist)
}

func same(a, b gpu.MPSDaemon) bool {
	return a.Name == b.Name && slices.Equal(a.Devices, b.Devices) &&
		a.ThreadPercentage == b.ThreadPercentage && slices.Equal(a.MemoryLimits, b.MemoryLimits) && slices.Equal(a.Namespaces, b.Namespaces)
}

// recordIntent writes the desired settings before they are applied.
func (d *daemon) recordIntent(want gpu.MPSDaemon) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := makeDir(d.folders.dir, runMode); err != nil {
		return err
	}
	// Earlier settings may have been applied in part.
	before, had := d.status.Daemon, d.had
	d.status.Daemon, d.had = want, eitherCeilings(d.had, want)
	if err := d.writeRecord(); err != nil {
		d.status.Daemon, d.had = before, had
		return err
	}
	d.configured = false
	return nil
}

// start starts the daemon and waits until it has its settings.
func (d *daemon) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.options.StartTimeout, gpu.ErrTimeout)
	defer cancel()
	want := d.snapshot().Daemon
	if want.HasNamespaces() {
		if err := d.options.checkSupport(ctx); err != nil {
			return err
		}
	}
	if err := d.options.makeFolders(ctx, d.folders, want); err != nil {
		return err
	}
	if want.HasNamespaces() {
		if err := os.WriteFile(d.folders.configuration(), []byte(configuration(want)), 0o600); err != nil {
			return err
		}
	}
	p, err := d.spawn()
	if err != nil {
		return err
	}
	if err := d.await(ctx, p); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.StopGrace)
		defer cancel()
		return errors.Join(err, p.kill(end))
	}
	d.mu.Lock()
	d.process = p
	d.mu.Unlock()
	d.setReady(ctx, "MPS daemon started")
	return nil
}

// multiUserFlag starts a daemon in multi-user mode.
const multiUserFlag = "-M"

// spawn starts the process, which outlives the supervisor: it has its own session and
// writes its output to a file.
func (d *daemon) spawn() (*process, error) {
	o := d.options
	cmd := exec.Command(o.Driver.Binaries(program)[0], "-f") //nolint:noctx // it outlives every context
	want := d.snapshot().Daemon
	switch {
	case want.HasNamespaces():
		cmd.Args = append(cmd.Args, protocol("-m", "-a", d.folders.configuration())...)
	case o.MultiUser:
		cmd.Args = append(cmd.Args, multiUserFlag)
	}
	output, err := os.OpenFile(d.folders.output(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(o.environment(d.folders),
		devicesVariable+strings.Join(want.Devices, ","),
		logVariable+d.folders.log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Cgroup != "" {
		cgroup, err := o.openCgroup()
		if err != nil {
			return nil, err
		}
		defer func() { _ = cgroup.Close() }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
	}
	if err := o.start(cmd, d.folders.mounts(o.MountNamespace)); err != nil {
		return nil, err
	}
	p, err := o.follow(cmd.Process.Pid, func() { _ = cmd.Wait() })
	if err != nil {
		// No other supervisor would find it.
		err = errors.Join(fmt.Errorf("follow process %d: %w", cmd.Process.Pid, err), cmd.Process.Kill())
		_ = cmd.Wait() // says that it was killed
		return nil, err
	}
	return p, nil
}

// await waits until a new process answers and has its settings.
func (d *daemon) await(ctx context.Context, p *process) error {
	var last error
	want := d.snapshot().Daemon
	wait := time.Millisecond
	for {
		if d.hasSocket() {
			if want.HasNamespaces() {
				last = d.options.checkFirst(ctx, d.folders, want.Namespaces)
			} else {
				last = d.options.applyFirst(ctx, d.folders, settings(gpu.MPSDaemon{}, want))
			}
			if last == nil || errors.Is(last, gpu.ErrNotSupported) {
				return last
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, 50*time.Millisecond)
		case <-p.ended:
			timer.Stop()
			return fmt.Errorf("%w: nvidia-cuda-mps-control ended at once%s", gpu.ErrNotReady, d.logTail())
		case <-ctx.Done():
			timer.Stop()
			if !errors.Is(context.Cause(ctx), gpu.ErrTimeout) {
				return errors.Join(ctx.Err(), last)
			}
			return errors.Join(fmt.Errorf("%w: nvidia-cuda-mps-control does not answer within %s%s", gpu.ErrTimeout, d.options.StartTimeout, d.logTail()), last)
		}
	}
}

// setReady records that the daemon answers and has its settings.
func (d *daemon) setReady(ctx context.Context, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.State, d.status.Problem, d.configured = gpu.MPSReady, "", true
	d.lastAnswer = d.options.Clock.Now()
	klog.FromContext(ctx).Info(message, "device", d.status.Daemon.Name, "pid", d.process.pid,
		"threadPercentage", d.status.Daemon.ThreadPercentage, "memoryLimits", d.status.Daemon.MemoryLimits, "namespaces", len(d.status.Daemon.Namespaces))
}

func (d *daemon) fail(problem string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.State, d.status.Problem = gpu.MPSFailed, problem
}

// stop ends the daemon with all its servers and removes its folders. The caller holds its
// lock.
func (d *daemon) stop(ctx context.Context) error {
	// Servers of a daemon that died do not end with the daemon that quits.
	if !d.quit(ctx) || d.snapshot().Restarts > 0 {
		end, cancel := context.WithTimeout(ctx, d.options.StopGrace)
		defer cancel()
		if err := d.options.killProcesses(end, d.folders.log); err != nil {
			return fmt.Errorf("stop MPS daemon %s: %w", d.name(), err)
		}
	}
	if err := d.options.unmountAll(d.folders); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", d.name(), err)
	}
	if err := d.folders.remove(ctx); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", d.name(), err)
	}
	return nil
}

// quit sends the daemon the command to end with its servers, and reports whether it has
// ended.
func (d *daemon) quit(ctx context.Context) bool {
	p := d.current()
	if !p.alive() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.options.StopGrace)
	defer cancel()
	// The daemon waits a second for its clients to end.
	quit := func() error {
		if d.snapshot().Daemon.HasNamespaces() {
			_, err := d.options.run(ctx, d.folders, protocol("-q"), "")
			return err
		}
		_, err := d.options.query(ctx, d.folders, "quit -t 1")
		return err
	}
	if err := quit(); err != nil {
		klog.FromContext(ctx).Info("MPS daemon does not quit, killing it", "device", d.name(), "pid", p.pid, "err", err)
		return false
	}
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// logTail returns the end of the daemon's logs, for an error message.
func (d *daemon) logTail() string {
	var said []string
	for _, name := range []string{"output.log", "control.log", filepath.Join(serverName, "server.log")} {
		if text, err := readEnd(filepath.Join(d.folders.log, name)); err == nil && text != "" {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "; it has said nothing"
	}
	return "; the last it said: " + strings.Join(said, "\n")
}
