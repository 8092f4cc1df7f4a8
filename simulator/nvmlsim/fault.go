// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// XIDs that the simulator reports by itself.
const (
	xidDoubleBitECC = 48
	xidNVLink       = 74
	xidOffTheBus    = 79
)

// EveryMethod as the method of a [CallFault] stands for all methods.
const EveryMethod = "*"

// untilCleared is longer than any node is simulated.
const untilCleared = Duration(100 * 365 * 24 * time.Hour)

// CallFault makes calls of one NVML method, or of all, fail or hang.
type CallFault struct {
	// Method of nvml.Interface, such as DeviceGetCount. The methods of
	// handles go by the name of the library's: DeviceGetUUID for
	// Device.GetUUID. [EveryMethod] stands for all.
	Method string `json:"method"`
	// GPU limits the fault to calls of one GPU, by index.
	GPU *int `json:"gpu,omitempty"`
	// After is how many more calls succeed before the first failure.
	After int `json:"after,omitempty"`
	// Count is how many more calls fail; 0 means all until the fault is cleared.
	Count int `json:"count,omitempty"`
	// Return is the result of the call; after SUCCESS the call is executed.
	Return nvml.Return `json:"return,omitempty"`
	// Hang is how long the call blocks before that. Clearing the faults ends
	// it early.
	Hang Duration `json:"hang,omitzero"`
}

// Duration is written as text: "5s".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// String describes the fault in a line.
func (f CallFault) String() string {
	var b strings.Builder
	b.WriteString(strings.Replace(f.Method, EveryMethod, "every method", 1))
	if f.GPU != nil {
		fmt.Fprintf(&b, " of GPU %d", *f.GPU)
	}
	if f.Hang >= untilCleared {
		b.WriteString(" hangs until cleared")
	} else if f.Hang > 0 {
		fmt.Fprintf(&b, " hangs for %s", time.Duration(f.Hang))
	}
	if f.Return != nvml.SUCCESS {
		fmt.Fprintf(&b, " returns %s", ReturnName(f.Return))
	}
	if f.After > 0 {
		fmt.Fprintf(&b, ", after %d more calls", f.After)
	}
	if f.Count > 0 {
		fmt.Fprintf(&b, ", %d more times", f.Count)
	}
	return b.String()
}

// ReturnName is NVML's name of a return code, such as ERROR_TIMEOUT.
func ReturnName(r nvml.Return) string {
	for name, value := range returns {
		if value == r {
			return name
		}
	}
	return fmt.Sprintf("%d", r)
}

// ParseReturn reads a return code by NVML's name, with or without NVML_.
func ParseReturn(name string) (nvml.Return, error) {
	if r, ok := returns[strings.TrimPrefix(strings.ToUpper(name), "NVML_")]; ok {
		return r, nil
	}
	return 0, fmt.Errorf("NVML return code %q: %w: want one of %s", name, simerr.ErrInvalid, known(returns))
}

var returns = map[string]nvml.Return{
	"SUCCESS":                         nvml.SUCCESS,
	"ERROR_UNINITIALIZED":             nvml.ERROR_UNINITIALIZED,
	"ERROR_INVALID_ARGUMENT":          nvml.ERROR_INVALID_ARGUMENT,
	"ERROR_NOT_SUPPORTED":             nvml.ERROR_NOT_SUPPORTED,
	"ERROR_NO_PERMISSION":             nvml.ERROR_NO_PERMISSION,
	"ERROR_NOT_FOUND":                 nvml.ERROR_NOT_FOUND,
	"ERROR_INSUFFICIENT_SIZE":         nvml.ERROR_INSUFFICIENT_SIZE,
	"ERROR_INSUFFICIENT_POWER":        nvml.ERROR_INSUFFICIENT_POWER,
	"ERROR_DRIVER_NOT_LOADED":         nvml.ERROR_DRIVER_NOT_LOADED,
	"ERROR_TIMEOUT":                   nvml.ERROR_TIMEOUT,
	"ERROR_IRQ_ISSUE":                 nvml.ERROR_IRQ_ISSUE,
	"ERROR_LIBRARY_NOT_FOUND":         nvml.ERROR_LIBRARY_NOT_FOUND,
	"ERROR_FUNCTION_NOT_FOUND":        nvml.ERROR_FUNCTION_NOT_FOUND,
	"ERROR_CORRUPTED_INFOROM":         nvml.ERROR_CORRUPTED_INFOROM,
	"ERROR_GPU_IS_LOST":               nvml.ERROR_GPU_IS_LOST,
	"ERROR_RESET_REQUIRED":            nvml.ERROR_RESET_REQUIRED,
	"ERROR_OPERATING_SYSTEM":          nvml.ERROR_OPERATING_SYSTEM,
	"ERROR_LIB_RM_VERSION_MISMATCH":   nvml.ERROR_LIB_RM_VERSION_MISMATCH,
	"ERROR_IN_USE":                    nvml.ERROR_IN_USE,
	"ERROR_MEMORY":                    nvml.ERROR_MEMORY,
	"ERROR_NO_DATA":                   nvml.ERROR_NO_DATA,
	"ERROR_INSUFFICIENT_RESOURCES":    nvml.ERROR_INSUFFICIENT_RESOURCES,
	"ERROR_ALREADY_INITIALIZED":       nvml.ERROR_ALREADY_INITIALIZED,
	"ERROR_VGPU_ECC_NOT_SUPPORTED":    nvml.ERROR_VGPU_ECC_NOT_SUPPORTED,
	"ERROR_FREQ_NOT_SUPPORTED":        nvml.ERROR_FREQ_NOT_SUPPORTED,
	"ERROR_ARGUMENT_VERSION_MISMATCH": nvml.ERROR_ARGUMENT_VERSION_MISMATCH,
	"ERROR_DEPRECATED":                nvml.ERROR_DEPRECATED,
	"ERROR_NOT_READY":                 nvml.ERROR_NOT_READY,
	"ERROR_GPU_NOT_FOUND":             nvml.ERROR_GPU_NOT_FOUND,
	"ERROR_INVALID_STATE":             nvml.ERROR_INVALID_STATE,
	"ERROR_RESET_TYPE_NOT_SUPPORTED":  nvml.ERROR_RESET_TYPE_NOT_SUPPORTED,
	"ERROR_UNKNOWN":                   nvml.ERROR_UNKNOWN,
}

// FailCalls adds a fault to the calls of one method, or of all.
func (s *Sim) FailCalls(f CallFault) error {
	f.Method = strings.TrimPrefix(f.Method, "nvml")
	if f.Method != EveryMethod && !isSimulated(f.Method) {
		return fmt.Errorf("fault in calls of %q: %w: the simulated NVML has no such method", f.Method, simerr.ErrInvalid)
	}
	if f.GPU != nil {
		if err := s.checkGPU(*f.GPU); err != nil {
			return err
		}
	}
	if f.Count < 0 || f.After < 0 || f.Hang < 0 || f.Hang == 0 && f.Return == nvml.SUCCESS {
		return fmt.Errorf("fault in calls of %s: %w: it needs a return code or a time to hang, and no negative numbers", f.Method, simerr.ErrInvalid)
	}
	return s.update(func(st *State) error {
		st.CallFaults = append(st.CallFaults, f)
		return nil
	})
}

// HangGPU makes each NVML call of a GPU hang until faults are cleared. Calls of other
// GPUs and of the node as a whole still work.
func (s *Sim) HangGPU(index int) error {
	return s.FailCalls(CallFault{Method: EveryMethod, GPU: &index, Hang: untilCleared})
}

// CheckAnswers blocks or fails if the GPU has a fault in all methods. It is for
// programs that query the driver without NVML.
func (s *Sim) CheckAnswers(index int) error {
	if err := s.checkGPU(index); err != nil {
		return err
	}
	st, err := s.load()
	if err != nil {
		return err
	}
	// No method has this name, so that only faults of every method strike.
	ret, err := s.strike(st, "nvidia-smi", index)
	if err == nil && ret != nvml.SUCCESS {
		err = fmt.Errorf("GPU %d: NVML returns %s", index, ReturnName(ret))
	}
	return err
}

// ReportXID reports an XID error of a GPU, and does nothing else to it.
func (s *Sim) ReportXID(index int, xid uint64) error {
	return s.changeGPU(index, func(st *State, g *GPUState) error {
		st.record(index, nvml.EventTypeXidCriticalError, xid)
		return nil
	})
}

// ReportProcessXID reports an XID error that a process on a GPU caused. If the process is a client
// of MPS, it returns the UUID of the daemon's device: the fault ends all clients of the server.
func (s *Sim) ReportProcessXID(pid int, xid uint64) (daemon string, err error) {
	err = s.update(func(st *State) error {
		for i, g := range st.GPUs {
			for _, p := range g.Processes {
				if p.PID != pid {
					continue
				}
				st.record(i, nvml.EventTypeXidCriticalError, xid)
				e := &st.Events[len(st.Events)-1]
				e.PID, e.Name = pid, p.Name
				if in, ci := findMIGDevice(&st.GPUs[i], p.Device); in != nil {
					e.MIG = &EventInstances{GPU: in.ID, Compute: ci.ID}
				}
				if p.MPSClient {
					daemon = cmp.Or(p.Device, s.node.gpus[i].uuid)
				}
				return nil
			}
		}
		return fmt.Errorf("report an XID of process %d: %w: it is on no GPU", pid, simerr.ErrNotFound)
	})
	return daemon, err
}

// ReportMIGXID reports an XID error of the MIG device with that UUID, and does nothing
// else to it. The event names the GPU, and the device by its two instances.
func (s *Sim) ReportMIGXID(uuid string, xid uint64) error {
	return s.update(func(st *State) error {
		for i := range st.GPUs {
			if in, ci := findMIGDevice(&st.GPUs[i], uuid); in != nil {
				st.record(i, nvml.EventTypeXidCriticalError, xid)
				st.Events[len(st.Events)-1].MIG = &EventInstances{GPU: in.ID, Compute: ci.ID}
				return nil
			}
		}
		return fmt.Errorf("report an XID of the MIG device %q: %w: no GPU of this %s has it", uuid, simerr.ErrNotFound, s.node.model.Name)
	})
}

// DeliverToAllSets sets whether the driver delivers the events of all GPUs to each event
// set. Some drivers do. The sets of a GPU get only its own otherwise.
func (s *Sim) DeliverToAllSets(on bool) error {
	return s.update(func(st *State) error {
		st.EventsToAllSets = on
		return nil
	})
}

// LoseGPU lets a GPU fall off the bus: every call of it returns
// ERROR_GPU_IS_LOST, after an XID 79, until a reset or a reboot.
func (s *Sim) LoseGPU(index int) error {
	return s.changeGPU(index, func(st *State, g *GPUState) error {
		g.Lost = true
		st.record(index, nvml.EventTypeXidCriticalError, xidOffTheBus)
		return nil
	})
}

// LoseGPUSilently is LoseGPU without an XID or any other event: only a call of the
// GPU notices it.
func (s *Sim) LoseGPUSilently(index int) error {
	return s.changeGPU(index, func(_ *State, g *GPUState) error {
		g.Lost = true
		return nil
	})
}

// FailECC simulates an uncorrectable memory error of a GPU, with an XID 48. From
// Ampere on the driver then asks for a reset of the GPU. It is
// [simerr.ErrNotSupported] on a GPU whose ECC is off.
func (s *Sim) FailECC(index int) error {
	return s.changeGPU(index, func(st *State, g *GPUState) error {
		if g.ECC == nil || !*g.ECC {
			return fmt.Errorf("GPU %d: %w: it has no ECC, or ECC is off", index, simerr.ErrNotSupported)
		}
		g.ECCErrors++
		st.record(index, nvml.EventTypeDoubleBitEccError, 0)
		st.record(index, nvml.EventTypeXidCriticalError, xidDoubleBitECC)
		if s.node.gpus[index].reportsRecovery() {
			st.askRecovery(index, RecoveryGPUReset)
		}
		return nil
	})
}

// LinkDown takes an NVLink down, with an XID 74. If the other end is a GPU, its end
// goes down too, with an XID 74 there.
func (s *Sim) LinkDown(index, link int) error {
	return s.changeGPU(index, func(st *State, _ *GPUState) error {
		ends, err := s.node.linkEnds(index, link)
		st.takeDown(ends)
		return err
	})
}

// LinkEndDown is LinkDown at the given end only: the other one has not noticed it yet.
func (s *Sim) LinkEndDown(index, link int) error {
	return s.changeGPU(index, func(st *State, _ *GPUState) error {
		ends, err := s.node.linkEnds(index, link)
		st.takeDown(ends[:min(len(ends), 1)])
		return err
	})
}

// takeDown takes the ends of links down.
func (st *State) takeDown(ends []linkEnd) {
	for _, end := range ends {
		g := &st.GPUs[end.gpu]
		if slices.Contains(g.LinksDown, end.link) {
			continue
		}
		g.LinksDown = append(g.LinksDown, end.link)
		slices.Sort(g.LinksDown)
		st.record(end.gpu, nvml.EventTypeXidCriticalError, xidNVLink)
	}
}

// changeGPU changes one GPU.
func (s *Sim) changeGPU(index int, change func(*State, *GPUState) error) error {
	if err := s.checkGPU(index); err != nil {
		return err
	}
	return s.update(func(st *State) error { return change(st, &st.GPUs[index]) })
}

// UnloadDriver takes the kernel driver away: from now on NVML cannot be initialised
// and every call returns ERROR_DRIVER_NOT_LOADED. The files below [Sim.Root] stay
// unchanged.
func (s *Sim) UnloadDriver() error {
	return s.update(func(st *State) error {
		st.NoDriver = true
		return nil
	})
}

// ClearFaults removes all faults: lost GPUs and links work again, clocks are at their
// highest, GPUs are in their fabric, the driver is loaded, and calls that hang return.
func (s *Sim) ClearFaults() error {
	return s.update(func(st *State) error {
		st.NoDriver, st.CallFaults, st.MPSStartFailures, st.MPSServersCharged = false, nil, 0, false
		st.FaultsCleared++
		for i := range st.GPUs {
			g := &st.GPUs[i]
			g.Lost, g.LinksDown, g.ECCErrors, g.Recovery = false, nil, 0, ""
			g.Fabric, g.Clique, g.Slow = "", nil, 0
		}
		return nil
	})
}

// strike counts a call against the first fault that fits it, and returns the result
// of the call. No more calls pass that fault. index is -1 for a call of no GPU,
// method is empty for one that faults do not strike.
func (s *Sim) strike(st *State, method string, index int) (nvml.Return, error) {
	fits := func(f CallFault) bool {
		return method != "" && (f.Method == method || f.Method == EveryMethod) && (f.GPU == nil || *f.GPU == index)
	}
	if !slices.ContainsFunc(st.CallFaults, fits) {
		return nvml.SUCCESS, nil
	}
	var fault CallFault
	var epoch uint64
	err := s.update(func(st *State) error {
		epoch = st.FaultsCleared
		fault = st.takeFault(fits)
		return nil
	})
	if err != nil {
		return returnOf(err), err
	}
	if fault.Hang > 0 {
		err := s.waitUntil(time.Now().Add(time.Duration(fault.Hang)), func(st *State) bool { return st.FaultsCleared != epoch })
		if err != nil {
			return returnOf(err), err
		}
	}
	return fault.Return, nil
}

// takeFault counts a call against the faults that fit it, and returns the fault
// that strikes. If none strikes, it returns a fault without effect.
func (st *State) takeFault(fits func(CallFault) bool) CallFault {
	for i := range st.CallFaults {
		f := &st.CallFaults[i]
		switch {
		case !fits(*f):
		case f.After > 0:
			f.After--
		default:
			fault := *f
			switch fault.Count {
			case 0:
			case 1:
				st.CallFaults = slices.Delete(st.CallFaults, i, i+1)
			default:
				f.Count--
			}
			return fault
		}
	}
	return CallFault{}
}
