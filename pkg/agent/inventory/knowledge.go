// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// knowledge is what [Inventory] knows of the GPUs. A GPU that has answered once stays in it.
type knowledge struct {
	driver     gpu.Node // without its GPUs
	load       string   // identifies the load of the driver; empty if unknown
	gpus       map[gpu.PCIAddress]state.Sighting
	unreadable []gpu.Unreadable
	incomplete error // of the last scan that succeeded
	// unreadableCount is len(unreadable) of the last scan that succeeded.
	unreadableCount int
	faults          map[string]fault // by UUID, each with a cause
	unsaved         map[string]bool  // UUIDs whose fault differs from its record
	endedCauses     []string         // log lines about causes that have ended
	attempted       bool             // a scan has ended
	succeeded       bool             // a scan has succeeded
	scanErr         error            // of the last scan as a whole
	failures        int              // consecutive scans that failed as a whole
	cordoned        []string
	nodes           map[string]error
}

func newKnowledge() *knowledge {
	return &knowledge{gpus: map[gpu.PCIAddress]state.Sighting{}, faults: map[string]fault{}, unsaved: map[string]bool{}}
}

// scan is the result of one scan of the hardware.
type scan struct {
	time time.Time
	node gpu.Node
	err  error
	// load and loadErr are the result of [Options.DriverLoad].
	load    string
	loadErr error
	changes state.Changes
	nodes   map[string]error // results of [Options.DeviceNodes] by UUID
}

// observe records a scan, and reports whether other GPUs answer than before.
func (k *knowledge) observe(s scan) (others bool) {
	k.bound(s.time)
	before := k.answering()
	k.attempted, k.scanErr, k.unreadable = true, s.err, s.node.Unreadable
	if s.err != nil {
		k.failures++
		k.fail()
		return !slices.Equal(before, k.answering())
	}
	k.succeeded, k.failures, k.unreadableCount, k.incomplete = true, 0, len(s.node.Unreadable), s.node.Incomplete
	k.nodes = s.nodes
	if s.node.DriverVersion != "" {
		k.driver = gpu.Node{DriverVersion: s.node.DriverVersion, CUDADriverVersion: s.node.CUDADriverVersion}
	}
	if s.loadErr == nil {
		k.load = s.node.DriverVersion + " " + s.load
	}
	answers := map[gpu.PCIAddress]bool{}
	for _, g := range s.node.GPUs {
		answers[g.Address] = true
		k.examine(g, s.time)
		k.gpus[g.Address] = state.Sighting{GPU: g, Changes: s.changes}
	}
	for _, address := range k.addresses() {
		if !answers[address] {
			k.setSilent(address, k.silenceOf(address))
			k.noteLost(address)
		}
	}
	return !slices.Equal(before, k.answering())
}

// fail records that the scan failed as a whole. Without a driver no GPU answers.
// Any other failure says nothing about a GPU, unless it is repeated.
func (k *knowledge) fail() {
	if !errors.Is(k.scanErr, gpu.ErrNotReady) && k.failures < 2 {
		return
	}
	for _, address := range k.addresses() {
		k.setSilent(address, k.scanErr)
	}
}

// setSilent records why the GPU at the address does not answer.
func (k *knowledge) setSilent(address gpu.PCIAddress, err error) {
	s := k.gpus[address]
	s.Err = err
	k.gpus[address] = s
}

// bound moves reports from the future to now, and these causes are saved again. A clock
// that was ahead has dated them, and only time could end them then.
func (k *knowledge) bound(now time.Time) {
	for _, uuid := range k.faulty() {
		if causes, changed := bound(k.faults[uuid].Causes, now); changed {
			k.setCauses(uuid, causes)
		}
	}
}

// noteLost records in the causes of the GPU at the address that it is lost, if it is.
func (k *knowledge) noteLost(address gpu.PCIAddress) {
	s := k.gpus[address]
	f, faulty := k.faults[s.GPU.UUID]
	if !faulty || !errors.Is(s.Err, gpu.ErrLost) {
		return
	}
	if causes, changed := markLost(f.Causes); changed {
		k.setCauses(s.GPU.UUID, causes)
	}
}

// examine ends the causes that a GPU that answers refutes.
func (k *knowledge) examine(g gpu.GPU, at time.Time) {
	for _, uuid := range k.faulty() {
		if f := k.faults[uuid]; uuid != g.UUID && f.Address == g.Address.String() {
			k.setCauses(uuid, nil)
			k.endedCauses = append(k.endedCauses, fmt.Sprintf("GPU %s at %s: another GPU is in its place", uuid, g.Address))
		}
	}
	left, over, changed := examine(k.faults[g.UUID].Causes, evidence{
		at: at, driver: k.load, branch: branchOf(k.driver.DriverVersion), recovery: g.Recovery,
	})
	if f, faulty := k.faults[g.UUID]; changed || faulty && f.Address != g.Address.String() {
		k.faults[g.UUID] = fault{UUID: g.UUID, Address: g.Address.String()}
		k.setCauses(g.UUID, left)
	}
	k.end(g.UUID, over)
}

// setCauses replaces the causes of a GPU, to be saved.
func (k *knowledge) setCauses(uuid string, causes []cause) {
	f := k.faults[uuid]
	f.UUID, f.Causes = uuid, causes
	k.faults[uuid], k.unsaved[uuid] = f, true
	if len(causes) == 0 {
		delete(k.faults, uuid)
	}
}

// end notes causes that have ended, to be logged.
func (k *knowledge) end(uuid string, over []ended) {
	for _, e := range over {
		k.endedCauses = append(k.endedCauses, fmt.Sprintf("GPU %s: %s: %s", uuid, e.text(), e.why))
	}
}

// takeUnsaved returns the faults to write, without causes if they have ended, and
// counts them as written.
func (k *knowledge) takeUnsaved() map[string]fault {
	taken := map[string]fault{}
	for uuid := range k.unsaved {
		f := k.faults[uuid]
		f.UUID = uuid
		taken[uuid] = f
	}
	clear(k.unsaved)
	return taken
}

// takeOver returns the log lines about causes that have ended.
func (k *knowledge) takeOver() []string {
	over := k.endedCauses
	k.endedCauses = nil
	return over
}

// faulty returns the UUIDs of GPUs with faults, in order.
func (k *knowledge) faulty() []string { return slices.Sorted(maps.Keys(k.faults)) }

// silenceOf returns why the GPU at the address does not answer.
func (k *knowledge) silenceOf(address gpu.PCIAddress) error {
	if err := gpu.WhyUnreadable(k.unreadable, address); err != nil {
		return err
	}
	return fmt.Errorf("%w: the driver no longer lists it", gpu.ErrLost)
}

// effect is what follows from an event.
type effect struct {
	marked bool // a GPU has a new cause
	scan   bool // the hardware must be scanned
	spaced bool // but not after each event
	again  bool // and again after a while
}

// note records an event. repairs are those that an administrator has declared before.
func (k *knowledge) note(e gpu.Event, repairs []repair, at time.Time) effect {
	rule := xidRules[e.XID]
	if e.XID != 0 && rule.marks == ignored {
		return effect{}
	}
	g, known := k.find(e.UUID)
	c, bad := causeOf(e, g.Recovery)
	if !bad || e.UUID == "" {
		return effect{scan: true, spaced: rule.marks == spaced, again: e.XID != 0 && rule.marks != spaced}
	}
	address := k.faults[e.UUID].Address
	if known {
		address = g.Address.String()
	}
	for _, r := range repairs {
		if r.names(e.UUID, address) {
			c.Declared = append(c.Declared, r.text)
		}
	}
	causes, changed := add(k.faults[e.UUID].Causes, c, at, k.load)
	if !changed {
		// The cause is known. A scan could only find a further link that is down, or
		// that the GPU is gone.
		return effect{scan: e.Kind == gpu.EventLink || e.Kind == gpu.EventLost}
	}
	k.setCauses(e.UUID, causes)
	return effect{marked: true, scan: true, again: true}
}

// find returns a GPU as it last answered.
func (k *knowledge) find(uuid string) (gpu.GPU, bool) {
	for _, s := range k.gpus {
		if s.GPU.UUID == uuid {
			return s.GPU, true
		}
	}
	return gpu.GPU{}, false
}

// hardware returns the hardware for the state.
func (k *knowledge) hardware() state.Hardware {
	h := state.Hardware{
		DriverVersion: k.driver.DriverVersion, CUDADriverVersion: k.driver.CUDADriverVersion,
		Unreadable: k.unreadable, UnreadableCount: k.unreadableCount, Incomplete: k.incomplete,
		Scanned: k.attempted, Succeeded: k.succeeded, Err: k.scanErr,
	}
	for _, address := range k.addresses() {
		h.GPUs = append(h.GPUs, k.gpus[address])
	}
	return h
}

// conditions returns the conditions for the state that follow from faults and cordons.
func (k *knowledge) conditions() state.Conditions {
	c := state.Conditions{Cordoned: k.cordoned}
	for _, uuid := range k.faulty() {
		f := k.faults[uuid]
		c.Faults = append(c.Faults, state.Fault{
			UUID: uuid, Address: f.Address, Cause: f.Causes[0].Cause, Since: f.Causes[0].First,
			Message: messages(f.Causes), Decisive: decisive(f.Causes),
		})
	}
	for _, address := range k.addresses() {
		uuid := k.gpus[address].GPU.UUID
		if _, faulty := k.faults[uuid]; k.nodes[uuid] != nil && !faulty {
			missing := newCause("device-node-missing")
			c.Faults = append(c.Faults, state.Fault{
				UUID: uuid, Address: address.String(), Cause: missing.Cause, Decisive: missing.Cause,
				Message: fmt.Sprintf("%s: %s", missing.text(), k.nodes[uuid]),
			})
		}
	}
	slices.SortFunc(c.Faults, func(a, b state.Fault) int { return strings.Compare(a.UUID, b.UUID) })
	return c
}

func (k *knowledge) addresses() []gpu.PCIAddress {
	return slices.SortedFunc(maps.Keys(k.gpus), gpu.PCIAddress.Compare)
}

func (k *knowledge) deviceNames() []string {
	var names []string
	for _, address := range k.addresses() {
		names = append(names, address.DeviceName())
	}
	return names
}

// answering returns the UUIDs of the GPUs that answer, in order of the PCI address.
func (k *knowledge) answering() []string {
	var uuids []string
	for _, address := range k.addresses() {
		if s := k.gpus[address]; s.Err == nil {
			uuids = append(uuids, s.GPU.UUID)
		}
	}
	return uuids
}
