// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	uuidA = "GPU-5d32c26d-913c-5913-8d54-b1d8c2a31c3d"
	uuidB = "GPU-e59ea56c-e52b-5844-818c-adb25db0b582"
	gib   = 1 << 30
)

// world is a node whose nvidia-cuda-mps-control the test binary plays.
type world struct {
	t       *testing.T
	dir     string
	options supervisor.Options

	supervisor *supervisor.Supervisor
	client     *client.Client
	// stop ends the supervisor and keeps its daemons, leave at a graceful end.
	stop, leave func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	options := supervisor.Double(t)
	w := &world{t: t, dir: filepath.Dir(options.RunDir), options: options}
	t.Cleanup(func() {
		w.start()
		w.stopAll()
		w.stop()
	})
	return w
}

// newMountWorld returns a world whose daemons have a /dev/shm of their own. It skips the
// test without root.
func newMountWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	w := newWorld(t)
	w.options.HostShm, w.options.ShmSize = false, shmSize
	return w
}

// start starts the supervisor and a client of it, unless they are there.
func (w *world) start() {
	w.t.Helper()
	if w.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	w.supervisor, err = supervisor.New(context.Background(), w.options)
	must(w.t, err)
	socket := filepath.Join(w.options.RunDir, "supervisor.sock")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := supervisor.Serve(ctx, socket, w.supervisor); err != nil {
			w.t.Error(err)
		}
	})
	w.client = client.New(socket)
	w.until("it serves", func() bool { _, err := w.client.MPSDaemons(context.Background()); return err == nil })
	end := func(last func() error) {
		cancel()
		serving.Wait()
		if err := last(); err != nil {
			w.t.Error(err)
		}
		w.stop, w.leave = nil, nil
	}
	w.stop = func() { end(w.supervisor.Close) }
	w.leave = func() { end(func() error { return w.supervisor.Leave(context.Background(), socket) }) }
}

// restart ends the supervisor and starts the next one, as an update does.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func (w *world) stopAll() {
	w.t.Helper()
	for _, s := range w.daemons() {
		if err := w.client.StopMPS(context.Background(), s.Daemon.Name); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) daemons() []gpu.MPSStatus {
	w.t.Helper()
	statuses, err := w.client.MPSDaemons(context.Background())
	must(w.t, err)
	return statuses
}

// daemon is the only one.
func (w *world) daemon() gpu.MPSStatus {
	w.t.Helper()
	statuses := w.daemons()
	if len(statuses) != 1 {
		w.t.Fatalf("there are %d daemons, want one: %+v", len(statuses), statuses)
	}
	return statuses[0]
}

func (w *world) ensure(d gpu.MPSDaemon) gpu.MPSDirs {
	w.t.Helper()
	dirs, err := w.client.EnsureMPS(w.t.Context(), d)
	must(w.t, err)
	return dirs
}

// record replaces a part of the record of the daemon of gpu-1a-00.
func (w *world) record(old, changed string) {
	w.t.Helper()
	path := filepath.Join(w.options.RunDir, "daemons/gpu-1a-00/daemon.json")
	data, err := os.ReadFile(path)
	must(w.t, err)
	text := strings.Replace(string(data), old, changed, 1)
	if text == string(data) {
		w.t.Fatalf("no %s in %s", old, data)
	}
	must(w.t, os.WriteFile(path, []byte(text), 0o600))
}

// fault has the program do wrong, until mend.
func (w *world) fault(name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "driver/faults", name)
	must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(w.t, os.WriteFile(path, nil, 0o600))
}

func (w *world) mend(name string) {
	w.t.Helper()
	must(w.t, os.Remove(filepath.Join(w.dir, "driver/faults", name)))
}

// commands that the daemon of a name was given, but for questions.
func (w *world) commands(name string) []string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.options.LogDir, name, "commands"))
	must(w.t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// left returns the names in the daemons' folder.
func (w *world) left() []string {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.options.RunDir, "daemons"))
	must(w.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// until waits for a condition, as long as the test may take.
func (w *world) until(what string, met func() bool) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for !met() {
		select {
		case <-deadline:
			w.t.Fatalf("waited a minute for this: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var must = require.NoError

// errOf returns the error of a call with two results.
func errOf[T any](_ T, err error) error { return err }
