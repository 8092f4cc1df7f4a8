// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// library is libnvidia-ml in one process.
type library struct {
	mock.Interface
	notSimulated notSimulated

	sim  *Sim
	bell bell

	mu   sync.Mutex
	uses int
	sets map[*eventSet]struct{}
}

var _ nvml.Interface = (*library)(nil)

func newLibrary(s *Sim) *library {
	return &library{sim: s, bell: bell{open: s.newWatch}, sets: map[*eventSet]struct{}{}}
}

// enter begins a call that concerns no GPU.
func (l *library) enter(method string) (*State, nvml.Return) {
	return l.begin(method, -1)
}

// begin does what every call begins with: is the library initialised, does the driver have
// the function, is the driver there, is the call to fail?
func (l *library) begin(method string, index int) (*State, nvml.Return) {
	l.mu.Lock()
	uses := l.uses
	l.mu.Unlock()
	if uses == 0 {
		return nil, nvml.ERROR_UNINITIALIZED
	}
	if l.sim.node.missing[method] {
		return nil, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	st, err := l.sim.load()
	if err != nil {
		return nil, returnOf(err)
	}
	if len(st.CallFaults) > 0 {
		ret, err := l.sim.strike(st, method, index)
		if err != nil || ret != nvml.SUCCESS {
			return nil, ret
		}
		// The world may have changed while the call hung.
		if st, err = l.sim.load(); err != nil {
			return nil, returnOf(err)
		}
	}
	if st.NoDriver {
		return nil, nvml.ERROR_DRIVER_NOT_LOADED
	}
	return st, nvml.SUCCESS
}

func (l *library) Init() nvml.Return {
	st, err := l.sim.load()
	if err != nil {
		return returnOf(err)
	}
	if ret, err := l.sim.strike(st, "Init", -1); err != nil || ret != nvml.SUCCESS {
		return ret
	}
	if st, err = l.sim.load(); err != nil {
		return returnOf(err)
	}
	if st.NoDriver {
		return nvml.ERROR_DRIVER_NOT_LOADED
	}
	if model := l.sim.node.model; model.moduleVersion() != model.DriverVersion {
		return nvml.ERROR_LIB_RM_VERSION_MISMATCH
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses++
	return nvml.SUCCESS
}

func (l *library) InitWithFlags(uint32) nvml.Return { return l.Init() }

// Shutdown undoes one Init. The last one frees all event sets, which ends the
// waits on them.
func (l *library) Shutdown() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses == 0 {
		return nvml.ERROR_UNINITIALIZED
	}
	if l.uses--; l.uses == 0 {
		for set := range l.sets {
			set.end()
		}
		clear(l.sets)
	}
	return nvml.SUCCESS
}

func (l *library) ErrorString(r nvml.Return) string { return r.Error() }

func (l *library) SystemGetDriverVersion() (string, nvml.Return) {
	if _, ret := l.enter("SystemGetDriverVersion"); ret != nvml.SUCCESS {
		return "", ret
	}
	return l.sim.node.model.DriverVersion, nvml.SUCCESS
}

// SystemGetNVMLVersion returns the CUDA version followed by the driver's, as NVML
// does: 12.570.124.06.
func (l *library) SystemGetNVMLVersion() (string, nvml.Return) {
	if _, ret := l.enter("SystemGetNVMLVersion"); ret != nvml.SUCCESS {
		return "", ret
	}
	return fmt.Sprintf("%d.%s", l.sim.node.cuda.Major, l.sim.node.model.DriverVersion), nvml.SUCCESS
}

func (l *library) SystemGetCudaDriverVersion() (int, nvml.Return) {
	return l.cudaVersion("SystemGetCudaDriverVersion")
}

func (l *library) SystemGetCudaDriverVersion_v2() (int, nvml.Return) { //nolint:revive // the name is go-nvml's
	return l.cudaVersion("SystemGetCudaDriverVersion_v2")
}

func (l *library) cudaVersion(method string) (int, nvml.Return) {
	if _, ret := l.enter(method); ret != nvml.SUCCESS {
		return 0, ret
	}
	return 1000*l.sim.node.cuda.Major + 10*l.sim.node.cuda.Minor, nvml.SUCCESS
}

func (l *library) DeviceGetCount() (int, nvml.Return) {
	if _, ret := l.enter("DeviceGetCount"); ret != nvml.SUCCESS {
		return 0, ret
	}
	return len(l.sim.node.gpus), nvml.SUCCESS
}

// handle returns the handle of a GPU, or an error if the GPU is lost, as NVML does.
func (l *library) handle(st *State, index int) (nvml.Device, nvml.Return) {
	if st.GPUs[index].Lost {
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return l.device(index, ""), nvml.SUCCESS
}

func (l *library) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	st, ret := l.begin("DeviceGetHandleByIndex", index)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	if index < 0 || index >= len(l.sim.node.gpus) {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return l.handle(st, index)
}

func (l *library) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	isMIG := func(st *State, index int) bool {
		in, _ := findMIGDevice(&st.GPUs[index], uuid)
		return in != nil
	}
	st, index, ret := l.lookUp("DeviceGetHandleByUUID", func(st *State, index int) bool {
		return l.sim.node.gpus[index].uuid == uuid || isMIG(st, index)
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	handle, ret := l.handle(st, index)
	if ret == nvml.SUCCESS && isMIG(st, index) {
		return l.device(index, uuid), nvml.SUCCESS
	}
	return handle, ret
}

func (l *library) DeviceGetHandleByPciBusId(busID string) (nvml.Device, nvml.Return) { //nolint:revive // the name is go-nvml's
	address, err := parsePCIAddress(busID)
	st, index, ret := l.lookUp("DeviceGetHandleByPciBusId", func(_ *State, index int) bool {
		return err == nil && l.sim.node.gpus[index].address == address
	})
	switch {
	case ret == nvml.ERROR_NOT_FOUND && err != nil:
		return nil, nvml.ERROR_INVALID_ARGUMENT
	case ret != nvml.SUCCESS:
		return nil, ret
	}
	return l.handle(st, index)
}

func (l *library) DeviceGetHandleBySerial(serial string) (nvml.Device, nvml.Return) {
	st, index, ret := l.lookUp("DeviceGetHandleBySerial", func(_ *State, index int) bool {
		return serial != "" && l.sim.node.gpus[index].gpu.Serial == serial
	})
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.handle(st, index)
}

// lookUp begins a call that names a GPU, and returns the index of the GPU. Faults
// of this GPU then strike the call. It returns ERROR_NOT_FOUND for a GPU that the
// node does not have.
func (l *library) lookUp(method string, is func(st *State, index int) bool) (*State, int, nvml.Return) {
	find := func(st *State) int {
		for index := range l.sim.node.gpus {
			if is(st, index) {
				return index
			}
		}
		return -1
	}
	struck := -1
	if st, err := l.sim.load(); err == nil {
		struck = find(st)
	}
	st, ret := l.begin(method, struck)
	if ret != nvml.SUCCESS {
		return nil, -1, ret
	}
	// The world may have changed while the call hung.
	index := find(st)
	if index < 0 {
		return nil, -1, nvml.ERROR_NOT_FOUND
	}
	return st, index, nvml.SUCCESS
}

func (l *library) GetExcludedDeviceCount() (int, nvml.Return) {
	_, ret := l.enter("GetExcludedDeviceCount")
	return 0, ret
}

func (l *library) Extensions() nvml.ExtendedInterface { return l }

var symbolVersion = regexp.MustCompile(`_v[0-9]+$`)

// LookupSymbol finds the functions that are simulated, and that the model's driver has.
func (l *library) LookupSymbol(name string) error {
	method, ok := strings.CutPrefix(name, "nvml")
	if ok && !l.sim.node.missing[method] && (isSimulated(method) || isSimulated(symbolVersion.ReplaceAllString(method, ""))) {
		return nil
	}
	return fmt.Errorf("symbol %q: %w in the simulated libnvidia-ml", name, simerr.ErrNotFound)
}

// change runs a change of the state on behalf of a call. The change refuses by
// returning anything but SUCCESS.
func (l *library) change(change func(*State) nvml.Return) nvml.Return {
	return returnOf(l.sim.update(func(st *State) error {
		if ret := change(st); ret != nvml.SUCCESS {
			return refusal(ret)
		}
		return nil
	}))
}
