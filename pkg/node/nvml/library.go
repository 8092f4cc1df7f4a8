// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Library reads the GPUs of a node. Its methods may be called from several
// goroutines.
type Library struct {
	// open opens the vendor's library, which may not be installed yet.
	open func() (nvml.Interface, error)
	// node guards the calls that concern the node as a whole, starting the
	// library among them.
	node *guard
	// reset is nil if GPUs may not be reset.
	reset ResetFunc
	// path is the file of the library; empty until open succeeds.
	path string
	// ownCgroup is the folder of this process' cgroup; empty if it is not known.
	ownCgroup string

	mu sync.Mutex
	// lib is nil until open succeeds.
	lib nvml.Interface
	// ready is true if Init has succeeded.
	ready bool
	// head is the last reading of the node; nil unless ready.
	head  *head
	slots map[int]*slot // by NVML index
	// gpus holds the NVML indexes of the GPUs in the last Snapshot by UUID. The map
	// is replaced and never modified. Then changed is closed and replaced too.
	gpus    map[string]int
	changed chan struct{}
	// watches counts the watchers, each of which may hold an event set.
	watches int
	// news has an item if a new Snapshot would differ from the last one without a
	// hardware event. See [gpu.EventAnswer].
	news chan struct{}
}

// Open prepares to read real GPUs with the driver installed below driverRoot
// ("/" for the host's own). It does not open the library: Snapshot returns
// [gpu.ErrNotReady] until the driver is installed and loaded.
//
// A process keeps the version of the library that it has loaded. After an update of
// the driver, Snapshot returns [gpu.ErrNotReady] until the process restarts.
func Open(driverRoot string, options ...Option) *Library {
	l := newLibrary(options, nil)
	l.open = func() (_ nvml.Interface, err error) {
		if l.path, err = FindLibrary(driverRoot); err != nil {
			return nil, err
		}
		return nvml.New(nvml.WithLibraryPath(l.path)), nil
	}
	return l
}

// New returns a Library that reads the GPUs behind lib, such as a simulator.
func New(lib nvml.Interface, options ...Option) *Library {
	return newLibrary(options, func() (nvml.Interface, error) { return lib, nil })
}

// Option is a setting of a [Library].
type Option func(*Library)

func newLibrary(options []Option, open func() (nvml.Interface, error)) *Library {
	l := &Library{
		open:    open,
		node:    newGuard(nil),
		slots:   map[int]*slot{},
		changed: make(chan struct{}),
		news:    make(chan struct{}, 1),
	}
	for _, set := range options {
		set(l)
	}
	return l
}

// start initialises the library if it is not initialised. Callers hold the node
// guard.
func (l *Library) start() (nvml.Interface, error) {
	l.mu.Lock()
	lib, ready := l.lib, l.ready
	l.mu.Unlock()
	if ready {
		return lib, nil
	}
	if lib == nil {
		var err error
		if lib, err = l.open(); err != nil {
			return nil, err
		}
	}
	ret := lib.Init()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ret {
	case nvml.SUCCESS:
		l.lib, l.ready = lib, true
		// An index may name another GPU now.
		for _, s := range l.slots {
			s.forget()
		}
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		// A later installation of the driver may put it at another path.
		l.lib = nil
	default:
		// go-nvml has loaded the library and does not load it twice.
		l.lib = lib
	}
	if err := check("start NVML", ret); err != nil {
		hint := startHints[ret]
		if ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH {
			hint = mismatch(l.path, "/sys/module/nvidia/version")
		}
		return nil, fmt.Errorf("%w%s", err, hint)
	}
	return lib, nil
}

// startHints holds advice for each reason why the library does not start.
var startHints = map[nvml.Return]string{
	nvml.ERROR_LIBRARY_NOT_FOUND: "; " + libraryName + " is missing or cannot be loaded: install the NVIDIA driver or correct the driver root",
	nvml.ERROR_DRIVER_NOT_LOADED: "; load the kernel module nvidia",
	nvml.ERROR_NO_PERMISSION:     "; this process may not open /dev/nvidiactl",
}

// mismatch returns advice for a library at a path that is not of the module's release. A process
// keeps the library that it has loaded, also after an update of the driver.
func mismatch(path, moduleFile string) string {
	library, module := "an unknown release", "an unknown release"
	if _, version, found := strings.Cut(filepath.Base(path), ".so."); found && strings.Contains(version, ".") {
		library = version
	}
	if version, err := os.ReadFile(moduleFile); err == nil { // a line of the kernel
		module = strings.TrimSpace(string(version))
	}
	remedy := "reload the module nvidia or reboot the node"
	if _, err := os.Stat(path); filepath.IsAbs(path) && errors.Is(err, fs.ErrNotExist) {
		remedy = "the driver was updated under this process: restart it"
	}
	return fmt.Sprintf("; the library is of %s, the kernel module of %s: %s", library, module, remedy)
}

// stop shuts the library down, so that the next start enumerates the GPUs again.
// Callers hold the node guard.
func (l *Library) stop() error {
	l.mu.Lock()
	lib, ready := l.lib, l.ready
	l.ready, l.head = false, nil
	l.mu.Unlock()
	if !ready {
		return nil
	}
	return check("shut NVML down", lib.Shutdown())
}

// notReady makes the next Snapshot start the library again.
func (l *Library) notReady() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready, l.head = false, nil
}

// started returns the initialised library. If the library is initialised already,
// started does not call the driver, so it does not wait for other calls that hang.
func (l *Library) started(ctx context.Context) (nvml.Interface, error) {
	l.mu.Lock()
	lib, ready := l.lib, l.ready
	l.mu.Unlock()
	if ready {
		return lib, nil
	}
	return do(ctx, l.node, "start NVML", l.start)
}

// notify makes the running Watch, or the next one, report that a Snapshot is due.
func (l *Library) notify() {
	select {
	case l.news <- struct{}{}:
	default: // one is due already
	}
}

// Close shuts the library down. It returns [gpu.ErrInUse] and does nothing while a
// call or a Watch is under way. It waits at most two seconds for a driver that
// hangs.
func (l *Library) Close() error {
	if l.busy() {
		return fmt.Errorf("shut NVML down: %w: a call is under way", gpu.ErrInUse)
	}
	_, err := doWithin(context.Background(), l.node, answerLimit, "shut NVML down", func() (struct{}, error) {
		return struct{}{}, l.stop()
	})
	return err
}

func (l *Library) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := l.node.busy() || l.watches > 0
	for _, s := range l.slots {
		busy = busy || s.busy()
	}
	return busy
}

// slot returns the slot of an index. A slot lasts as long as the Library, because a
// call may be stuck in it.
func (l *Library) slot(index int) *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.slots[index]
	if s == nil {
		s = newSlot(l.notify)
		l.slots[index] = s
	}
	return s
}

// setFound records the GPUs of a Snapshot and wakes each Watch if they have changed.
func (l *Library) setFound(gpus map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if maps.Equal(gpus, l.gpus) {
		return
	}
	l.gpus = gpus
	close(l.changed)
	l.changed = make(chan struct{})
}
