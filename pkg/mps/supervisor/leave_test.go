// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// files returns the files in the run and log directories. It also returns the empty
// folders, with a slash at the end.
func (w *world) files() []string {
	w.t.Helper()
	var all []string
	for _, dir := range []string{w.options.RunDir, w.options.LogDir} {
		must(w.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil && (path != dir || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
			name, err := filepath.Rel(w.dir, path)
			if err != nil || d == nil {
				return err
			}
			if d.IsDir() {
				if inner, err := os.ReadDir(path); err != nil || len(inner) > 0 {
					return err
				}
				name += "/"
			}
			all = append(all, name)
			return nil
		}))
	}
	return all
}

func (w *world) wantFiles(want ...string) {
	w.t.Helper()
	require.Same(w.t, "files", want, w.files())
}

func TestASupervisorWithoutDaemonsLeavesAnEmptyRunDirectory(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.stopAll()
	w.leave()
	w.wantFiles("run/")
	// The next one finds its way, and leaves as well.
	w.start()
	w.ensure(shareOfA)
	w.stopAll()
	w.leave()
	w.wantFiles("run/")
}

// A call that comes too late must not leave a daemon behind that never was.
func TestADaemonThatNeverWasKeepsNothing(t *testing.T) {
	w := newWorld(t)
	w.start()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		// Whether such a call fails is not the matter.
		_ = w.supervisor.StopMPS(ended, "gpu-1b-00")
	}
	w.leave()
	w.wantFiles("run/")
}

func TestASupervisorWithADaemonLeavesEverythingToTheNext(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{uuidB}})
	w.ensure(shareOfA)
	must(t, w.client.StopMPS(t.Context(), "gpu-1b-00"))
	before, pid := w.files(), w.daemon().PID
	w.leave()
	w.wantFiles(before...)
	w.start()
	w.until("it is adopted", func() bool { return w.daemon().State == gpu.MPSReady })
	if got := w.daemon().PID; got != pid {
		t.Errorf("the daemon was process %d and is %d", pid, got)
	}
}

// A daemon whose record cannot be read may have clients.
func TestASupervisorThatDoesNotKnowADaemonLeavesEverything(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.ensure(shareOfA)
	w.stop()
	must(t, os.WriteFile(filepath.Join(w.options.RunDir, "daemons/gpu-1a-00/daemon.json"), nil, 0o600))
	w.start()
	before := w.files()
	w.leave()
	w.wantFiles(before...)
}

func TestASupervisorLeavesAloneWhatItDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	theirs := []string{"run/daemons/notes", "run/notes", "log/gpu-1b-00", "log/notes", "log/others/notes"}
	for _, file := range theirs {
		path := filepath.Join(w.dir, file)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)))
	}
	w.start()
	w.ensure(shareOfA)
	w.stopAll()
	w.leave()
	w.wantFiles(theirs...)
}

// In a container both directories are mount points.
func TestALogDirectoryThatIsAMountPointStaysEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	w := newWorld(t)
	must(t, os.Mkdir(w.options.LogDir, 0o700))
	must(t, unix.Mount(w.options.LogDir, w.options.LogDir, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(w.options.LogDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w.start()
	w.ensure(shareOfA)
	w.stopAll()
	w.leave()
	w.wantFiles("run/", "log/")
	w.start()
}

func TestACallThatComesAfterTheEndMakesNothing(t *testing.T) {
	w := newWorld(t)
	w.start()
	ended := w.supervisor
	w.leave()
	require.Error(t, "a late call", errOf(ended.EnsureMPS(t.Context(), shareOfA)), gpu.ErrNotReady)
	w.wantFiles("run/")
}

// One supervisor after the other, each with the folders that it needs, while
// others try to be it.
func TestTheNextSupervisorLosesNothingToTheOneThatLeaves(t *testing.T) {
	const supervisors, rounds = 4, 50
	w := newWorld(t)
	socket := filepath.Join(w.options.RunDir, "supervisor.sock")
	var are, served atomic.Int32
	var all sync.WaitGroup
	for range supervisors {
		all.Go(func() {
			for range rounds {
				s, err := supervisor.New(context.Background(), w.options)
				if errors.Is(err, gpu.ErrInUse) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				served.Add(1)
				if n := are.Add(1); n != 1 {
					t.Errorf("there are %d supervisors", n)
				}
				for _, dir := range []string{filepath.Join(w.options.RunDir, "daemons"), w.options.LogDir} {
					if _, err := os.Stat(dir); err != nil {
						t.Error(err)
					}
				}
				are.Add(-1)
				if err := s.Leave(context.Background(), socket); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if served.Load() < supervisors {
		t.Errorf("there were %d supervisors, so nothing was tried", served.Load())
	}
	w.wantFiles("run/")
}
