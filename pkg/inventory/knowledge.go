// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// knowledge is all that is known of the node's GPUs. A GPU that has answered
// once stays in it: a device that disappears while a claim holds it would
// confuse the scheduler, so it is marked instead.
type knowledge struct {
	driver     gpu.Node // without its GPUs
	load       string   // identifies the load of the driver; empty if unknown
	gpus       map[gpu.PCIAddress]sighting
	unreadable []gpu.Unreadable
	incomplete error // of the last scan that succeeded
	// unreadableCount is len(unreadable) of the last scan that succeeded.
	unreadableCount int
	faults          map[string]fault // by UUID, each with a cause
	unsaved         map[string]bool  // UUIDs whose fault differs from its record
	over            []string         // log lines about causes that have ended
	attempted       bool             // a scan has ended
	scanErr         error            // of the last scan as a whole
	failures        int              // consecutive scans that failed as a whole
	external        []gpu.ExternalAllocation
	namespaces      bool // MPS daemons can have namespaces
}

// sighting is a GPU as it last answered, without what claims had made of it,
// and why it does not answer now.
type sighting struct {
	gpu gpu.GPU
	err error
}

func newKnowledge() *knowledge {
	return &knowledge{gpus: map[gpu.PCIAddress]sighting{}, faults: map[string]fault{}, unsaved: map[string]bool{}}
}

// scan is the result of one scan of the hardware.
type scan struct {
	at   time.Time
	node gpu.Node
	err  error
	// load and loadErr are the result of [Options.DriverLoad].
	load    string
	loadErr error
	// held are the devices that claims hold, kept the UUIDs of the MIG devices that stay
	// without claims, switched the GPUs whose MIG mode claims have switched on, and
	// exclusive the GPUs that claims have put into EXCLUSIVE_PROCESS.
	held                map[kind.Name]bool
	kept                map[string]bool
	switched, exclusive map[gpu.PCIAddress]bool
}

// observe records a scan, and reports whether other GPUs answer than before.
func (k *knowledge) observe(s scan) (others bool) {
	k.bound(s.at)
	before := k.answering()
	k.attempted, k.scanErr, k.unreadable = true, s.err, s.node.Unreadable
	if s.err != nil {
		k.failures++
		k.fail()
		return !slices.Equal(before, k.answering())
	}
	k.failures, k.unreadableCount, k.incomplete = 0, len(s.node.Unreadable), s.node.Incomplete
	if s.node.DriverVersion != "" {
		k.driver = gpu.Node{DriverVersion: s.node.DriverVersion, CUDADriverVersion: s.node.CUDADriverVersion}
	}
	if s.loadErr == nil {
		k.load = s.node.DriverVersion + " " + s.load
	}
	answers := map[gpu.PCIAddress]bool{}
	for _, g := range s.node.GPUs {
		answers[g.Address] = true
		k.examine(g, s.at)
		k.gpus[g.Address] = sighting{gpu: without(g, s)}
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
	s.err = err
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
	f, faulty := k.faults[s.gpu.UUID]
	if !faulty || !errors.Is(s.err, gpu.ErrLost) {
		return
	}
	if causes, changed := lose(f.Causes); changed {
		k.setCauses(s.gpu.UUID, causes)
	}
}

// examine ends the causes that a GPU that answers refutes.
func (k *knowledge) examine(g gpu.GPU, at time.Time) {
	for _, uuid := range k.faulty() {
		if f := k.faults[uuid]; uuid != g.UUID && f.Address == g.Address.String() {
			k.setCauses(uuid, nil)
			k.over = append(k.over, fmt.Sprintf("GPU %s at %s: another GPU is in its place", uuid, g.Address))
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
		k.over = append(k.over, fmt.Sprintf("GPU %s: %s: %s", uuid, e.Message, e.why))
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
	over := k.over
	k.over = nil
	return over
}

// faulty returns the UUIDs of GPUs with faults, in order.
func (k *knowledge) faulty() []string { return slices.Sorted(maps.Keys(k.faults)) }

// without returns a GPU without the changes of claims: their partitions, the partitions
// that stay for later claims, and a MIG mode and compute mode that only they need. A mode
// is theirs only if a record shows it.
func without(g gpu.GPU, s scan) gpu.GPU {
	g.MIG.Partitions = slices.DeleteFunc(slices.Clone(g.MIG.Partitions), func(p gpu.Partition) bool {
		name := kind.Partition(g.Address, p.Profile, p.Placement.Start)
		_, theirs := s.held[name]
		return theirs || s.kept[p.UUID]
	})
	if s.switched[g.Address] && len(g.MIG.Partitions) == 0 {
		g.MIG.Enabled, g.MIG.PendingEnabled = false, false
	}
	if s.exclusive[g.Address] && g.ComputeMode == gpu.ComputeModeExclusiveProcess {
		g.ComputeMode = gpu.ComputeModeDefault
	}
	return g
}

// silenceOf returns why the GPU at the address does not answer.
func (k *knowledge) silenceOf(address gpu.PCIAddress) error {
	for _, u := range k.unreadable {
		if u.Address != nil && *u.Address == address {
			return u.Err
		}
	}
	for _, u := range k.unreadable {
		if u.Address == nil {
			return fmt.Errorf("it may be GPU %d, which does not tell its address: %w", u.Index, u.Err)
		}
	}
	return fmt.Errorf("%w: the driver no longer lists it", gpu.ErrLost)
}

// effect is what follows from an event.
type effect struct {
	marked bool // a GPU has a new cause
	scan   bool // the hardware must be scanned
	again  bool // and once more after a while
}

// note records an event.
func (k *knowledge) note(e gpu.Event, at time.Time) effect {
	rule := xidRules[e.XID]
	if e.XID != 0 && rule.marks == ignored {
		return effect{}
	}
	c, bad := causeOf(e, k.recoveryOf(e.UUID))
	if !bad || e.UUID == "" {
		return effect{scan: true, again: e.XID != 0}
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

// recoveryOf returns the recovery action that the driver last asked for.
func (k *knowledge) recoveryOf(uuid string) gpu.RecoveryAction {
	for _, s := range k.gpus {
		if s.gpu.UUID == uuid {
			return s.gpu.Recovery
		}
	}
	return ""
}

// node returns each GPU that has answered, and as unreadable the GPUs that have not. A
// GPU that no longer answers has no links.
func (k *knowledge) node() gpu.Node {
	node := k.driver
	for _, u := range k.unreadable {
		if u.Address != nil {
			if _, known := k.gpus[*u.Address]; known {
				continue
			}
		}
		node.Unreadable = append(node.Unreadable, u)
	}
	for _, address := range k.addresses() {
		s := k.gpus[address]
		if s.err != nil {
			s.gpu.Links = nil
		}
		node.GPUs = append(node.GPUs, k.withNamespaces(s.gpu).WithExternalAllocations(k.external))
	}
	return node
}

// devices returns the health of each known GPU, in order of the device's name.
func (k *knowledge) devices() []DeviceHealth {
	devices := []DeviceHealth{}
	for _, address := range k.addresses() {
		s := k.gpus[address]
		d := DeviceHealth{Name: address.DeviceName(), Address: address, UUID: s.gpu.UUID}
		d.Reason, d.Message = k.wrong(s)
		d.Healthy = d.Reason == ""
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b DeviceHealth) int { return strings.Compare(a.Name, b.Name) })
	return devices
}

// wrong returns why new claims must not get a GPU: the first reason as the value of
// a taint, and all reasons as a message. Both are empty for a healthy GPU.
func (k *knowledge) wrong(s sighting) (value, message string) {
	var values, all []string
	for _, c := range k.faults[s.gpu.UUID].Causes {
		values, all = append(values, c.Value), append(all, c.Message)
	}
	if s.err != nil {
		values, all = append(values, use.Silence(s.err)), append(all, s.err.Error())
	} else if v, m := use.Fabric(s.gpu.FabricState); v != "" {
		values, all = append(values, v), append(all, m)
	}
	if len(values) == 0 {
		return "", ""
	}
	return values[0], strings.Join(all, "; ")
}

// withFault returns the GPU of a sighting that answers, with its fault.
func (k *knowledge) withFault(s sighting) gpu.GPU {
	g := k.withNamespaces(s.gpu)
	causes := k.faults[g.UUID].Causes
	fabric, message := use.Fabric(g.FabricState)
	switch {
	case len(causes) > 0:
		g.Fault = fmt.Sprintf("%s: %s", messages(causes), remedy(causes))
	case fabric != "":
		g.Fault = fmt.Sprintf("%s: %s", message, use.FabricRemedy)
	}
	return g
}

// missing returns why GPUs do not answer; nil if all do.
func (k *knowledge) missing() error {
	errs := []error{k.scanErr}
	silent := map[gpu.PCIAddress]error{}
	for _, u := range k.unreadable {
		if u.Address == nil {
			errs = append(errs, u.Problem())
			continue
		}
		silent[*u.Address] = u.Err
	}
	if k.scanErr == nil {
		for address, s := range k.gpus {
			if s.err != nil {
				silent[address] = s.err
			}
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(silent), gpu.PCIAddress.Compare) {
		errs = append(errs, fmt.Errorf("GPU at %s: %w", address, silent[address]))
	}
	return errors.Join(errs...)
}

// topology returns which facts about the place and the links of GPUs that answer are
// missing or not used; nil if none.
func (k *knowledge) topology() error {
	silent := func(address gpu.PCIAddress) bool {
		s, known := k.gpus[address]
		return known && s.err != nil || slices.ContainsFunc(k.unreadable, func(u gpu.Unreadable) bool { return u.Address == nil || *u.Address == address })
	}
	return errors.Join(k.incomplete, gpu.CheckNVLinks(k.answer(), silent))
}

// failed returns the faults of GPUs that answer, and of GPUs that have never
// answered; nil if there are none.
func (k *knowledge) failed() error {
	var errs []error
	seen := map[string]bool{}
	for _, address := range k.addresses() {
		s := k.gpus[address]
		seen[s.gpu.UUID] = true
		if _, message := k.wrong(s); message != "" && s.err == nil {
			errs = append(errs, fmt.Errorf("GPU at %s: %s", address, message))
		}
	}
	for _, uuid := range k.faulty() {
		if f := k.faults[uuid]; !seen[uuid] {
			errs = append(errs, fmt.Errorf("GPU %s at %s: %s", uuid, cmp.Or(f.Address, "an unknown address"), messages(f.Causes)))
		}
	}
	return errors.Join(errs...)
}

// joining reports whether a GPU that answers has not joined its fabric yet.
func (k *knowledge) joining() bool {
	return slices.ContainsFunc(k.answer(), func(g gpu.GPU) bool {
		value, _ := use.Fabric(g.FabricState)
		return value != ""
	})
}

// modeInTheWay reports whether a GPU has a compute mode other than the default.
func (k *knowledge) modeInTheWay() bool {
	for _, s := range k.gpus {
		if mode := s.gpu.ComputeMode; mode != "" && mode != gpu.ComputeModeDefault {
			return true
		}
	}
	return false
}

// find returns the GPU at the address if it answers.
func (k *knowledge) find(address gpu.PCIAddress) (gpu.GPU, error) {
	s, known := k.gpus[address]
	switch {
	case known && s.err == nil:
		return k.withFault(s).WithExternalAllocations(k.external), nil
	case known:
		return gpu.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, s.err)
	}
	for _, u := range k.unreadable {
		if u.Address != nil && *u.Address == address {
			return gpu.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, u.Err)
		}
	}
	return gpu.GPU{}, fmt.Errorf("GPU at %s: %w on this node", address, gpu.ErrNotFound)
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

func (k *knowledge) answering() []string {
	var uuids []string
	for _, g := range k.answer() {
		uuids = append(uuids, g.UUID)
	}
	return uuids
}

// answer returns the GPUs that answer, in order of the PCI address.
func (k *knowledge) answer() []gpu.GPU {
	var gpus []gpu.GPU
	for _, address := range k.addresses() {
		if s := k.gpus[address]; s.err == nil {
			gpus = append(gpus, k.withFault(s))
		}
	}
	return gpus
}
