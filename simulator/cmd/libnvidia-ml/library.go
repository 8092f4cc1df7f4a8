// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo LDFLAGS: -ldl
#include "library.h"
*/
import "C"

import (
	"os"
	"reflect"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// process is the library in this process. C has no place to hold it but a global.
var process library //nolint:gochecknoglobals // the callers are C functions without an object

// library is libnvidia-ml in a process. The first nvmlInit opens the node. The first one after
// the last nvmlShutdown opens it again, because there may be another one now.
type library struct {
	mu   sync.RWMutex
	sim  *nvmlsim.Sim
	uses int
	// calls counts the calls by its size. It is nil unless the environment names it.
	calls *os.File

	handles handles
	texts   texts
}

// init is nvmlInit. It holds no lock during the call of the simulator, which may hang.
func (l *library) init() nvml.Return {
	sim, ret := l.node()
	if ret == nvml.SUCCESS {
		ret = sim.NVML().Init()
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses++
	C.set_initialised(1)
	return nvml.SUCCESS
}

// node returns the node, which the first nvmlInit opens.
func (l *library) node() (*nvmlsim.Sim, nvml.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses == 0 {
		if ret := l.open(); ret != nvml.SUCCESS {
			return nil, ret
		}
		if err := l.count(); err != nil {
			return nil, nvml.ERROR_INVALID_ARGUMENT
		}
	}
	return l.sim, nvml.SUCCESS
}

// open opens the node. Handles stay valid, unless another node is there now. The caller
// holds the lock.
func (l *library) open() nvml.Return {
	sim, err := openSim()
	if err != nil {
		return nvmlsim.OpenReturn(err)
	}
	if l.sim == nil || l.sim.Root() != sim.Root() || !reflect.DeepEqual(l.sim.Model(), sim.Model()) {
		l.sim = sim
		l.handles.clear()
	}
	return nvml.SUCCESS
}

// count opens the file that counts calls, if the environment names one.
func (l *library) count() error {
	path := C.GoString(C.calls_file())
	if path == "" {
		return nil
	}
	var err error
	l.calls, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

// openSim opens the node that the environment names, or else the one that has this library.
// The environment is C's, because Go's is the one in which the library was loaded.
func openSim() (*nvmlsim.Sim, error) {
	if dir := C.GoString(C.state_folder()); dir != "" {
		return nvmlsim.Open(dir)
	}
	return nvmlsim.OpenOwner(C.GoString(C.library_path()))
}

// shutdown is nvmlShutdown. The last one frees the event sets.
func (l *library) shutdown() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses == 0 {
		return nvml.ERROR_UNINITIALIZED
	}
	ret := l.sim.NVML().Shutdown()
	if l.uses--; l.uses == 0 {
		_ = l.calls.Close() // each call has been written
		l.calls = nil
		C.set_initialised(0)
		dropHandles[nvml.EventSet](&l.handles)
	}
	return ret
}

// nvml returns the simulated library, or false before nvmlInit.
func (l *library) nvml() (nvml.Interface, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.uses == 0 {
		return nil, false
	}
	if l.calls != nil {
		_, _ = l.calls.Write([]byte{'.'}) // a full disk must not fail the call
	}
	return l.sim.NVML(), true
}
