package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// inventory is all that is known of the node's GPUs. A GPU that has answered
// once stays in it: a device that disappears while a claim holds it would
// confuse the scheduler, so it is marked instead.
type inventory struct {
	driver     gpu.Node // without its GPUs
	load       string   // identifies the load of the driver; empty if unknown
	known      map[gpu.PCIAddress]sighting
	unreadable []gpu.Unreadable
	faults     map[string]fault // by UUID, each with a cause
	unsaved    map[string]bool  // UUIDs whose fault is not on the disk as it is here
	over       []string         // log lines about causes that have ended
	looked     error            // of the last scan as a whole
	failures   int              // scans as a whole that failed in a row
	lent       []gpu.Lent       // by device plugins
}

// sighting is a GPU as it last answered, without what claims had made of it,
// and why it does not answer now.
type sighting struct {
	gpu gpu.GPU
	err error
}

func newInventory() *inventory {
	return &inventory{known: map[gpu.PCIAddress]sighting{}, faults: map[string]fault{}, unsaved: map[string]bool{}}
}

// scan is the result of one scan of the hardware.
type scan struct {
	at   time.Time
	node gpu.Node
	err  error
	// load is what [Options.DriverLoad] returned with loadErr.
	load    string
	loadErr error
	// held are the devices that claims hold, and switched the GPUs whose MIG mode
	// claims have switched on.
	held     catalog.Held
	switched map[gpu.PCIAddress]bool
}

// observe takes in a scan, and reports whether other GPUs answer than before.
func (i *inventory) observe(s scan) (others bool) {
	before := i.answering()
	i.looked, i.unreadable = s.err, s.node.Unreadable
	if s.err != nil {
		i.failures++
		i.fail()
		return !slices.Equal(before, i.answering())
	}
	i.failures = 0
	if s.node.DriverVersion != "" {
		i.driver = gpu.Node{DriverVersion: s.node.DriverVersion, CUDADriverVersion: s.node.CUDADriverVersion}
	}
	if s.loadErr == nil {
		i.load = s.node.DriverVersion + " " + s.load
	}
	answers := map[gpu.PCIAddress]bool{}
	for _, g := range s.node.GPUs {
		answers[g.Address] = true
		i.examine(g, s.at)
		i.known[g.Address] = sighting{gpu: without(g, s.held, s.switched[g.Address])}
	}
	for _, address := range i.addresses() {
		if !answers[address] {
			i.silent(address, i.whyNot(address))
			i.lose(address)
		}
	}
	return !slices.Equal(before, i.answering())
}

// fail takes in that the scan as a whole has failed. A driver that is gone takes
// its GPUs along. Any other failure says nothing of a GPU, unless it is repeated.
func (i *inventory) fail() {
	if !errors.Is(i.looked, gpu.ErrNotReady) && i.failures < 2 {
		return
	}
	for _, address := range i.addresses() {
		i.silent(address, i.looked)
	}
}

// silent takes in that the GPU at the address does not answer.
func (i *inventory) silent(address gpu.PCIAddress, err error) {
	s := i.known[address]
	s.err = err
	i.known[address] = s
}

// lose notes with the causes of the GPU at the address that it is lost, if it is.
func (i *inventory) lose(address gpu.PCIAddress) {
	s := i.known[address]
	f, faulty := i.faults[s.gpu.UUID]
	if !faulty || !errors.Is(s.err, gpu.ErrLost) {
		return
	}
	if causes, changed := lose(f.Causes); changed {
		i.setCauses(s.gpu.UUID, causes)
	}
}

// examine judges the causes against a GPU that answers.
func (i *inventory) examine(g gpu.GPU, at time.Time) {
	for _, uuid := range i.faulty() {
		if f := i.faults[uuid]; uuid != g.UUID && f.Address == g.Address.String() {
			i.setCauses(uuid, nil)
			i.over = append(i.over, fmt.Sprintf("GPU %s at %s: another GPU is in its place", uuid, g.Address))
		}
	}
	left, over, changed := examine(i.faults[g.UUID].Causes, evidence{
		at: at, driver: i.load, branch: branchOf(i.driver.DriverVersion), recovery: g.Recovery,
	})
	if f, faulty := i.faults[g.UUID]; changed || faulty && f.Address != g.Address.String() {
		i.faults[g.UUID] = fault{UUID: g.UUID, Address: g.Address.String()}
		i.setCauses(g.UUID, left)
	}
	i.end(g.UUID, over)
}

// setCauses replaces the causes of a GPU, to be saved.
func (i *inventory) setCauses(uuid string, causes []cause) {
	f := i.faults[uuid]
	f.UUID, f.Causes = uuid, causes
	i.faults[uuid], i.unsaved[uuid] = f, true
	if len(causes) == 0 {
		delete(i.faults, uuid)
	}
}

// end notes causes that have ended, to be logged.
func (i *inventory) end(uuid string, over []ended) {
	for _, e := range over {
		i.over = append(i.over, fmt.Sprintf("GPU %s: %s: %s", uuid, e.Message, e.why))
	}
}

// takeUnsaved returns the faults that are to be written, without causes if they
// have ended, and takes them as written.
func (i *inventory) takeUnsaved() map[string]fault {
	taken := map[string]fault{}
	for uuid := range i.unsaved {
		f := i.faults[uuid]
		f.UUID = uuid
		taken[uuid] = f
	}
	clear(i.unsaved)
	return taken
}

// takeOver returns the log lines about causes that have ended.
func (i *inventory) takeOver() []string {
	over := i.over
	i.over = nil
	return over
}

// faulty returns the UUIDs of GPUs with faults, in order.
func (i *inventory) faulty() []string { return slices.Sorted(maps.Keys(i.faults)) }

// without returns a GPU without what claims have made of it: their partitions,
// and a MIG mode that is on for nothing else. A mode is theirs if the record of
// it says so, never because it looks like that.
func without(g gpu.GPU, held catalog.Held, switched bool) gpu.GPU {
	parts := held.PartsOf(g.Address)
	g.MIG.Partitions = slices.DeleteFunc(slices.Clone(g.MIG.Partitions), func(p gpu.Partition) bool {
		return slices.Contains(parts, kind.Name{Kind: kind.MIG, Address: g.Address, Profile: p.Profile, Start: p.Placement.Start})
	})
	if switched && len(g.MIG.Partitions) == 0 {
		g.MIG.Enabled = false
	}
	return g
}

// whyNot says why the GPU at the address does not answer.
func (i *inventory) whyNot(address gpu.PCIAddress) error {
	for _, u := range i.unreadable {
		if u.Address != nil && *u.Address == address {
			return u.Err
		}
	}
	for _, u := range i.unreadable {
		if u.Address == nil {
			return fmt.Errorf("it may be GPU %d, which does not tell its address: %w", u.Index, u.Err)
		}
	}
	return fmt.Errorf("%w: the driver no longer lists it", gpu.ErrLost)
}

// news says what an event is worth.
type news struct {
	marked bool // a GPU has a cause that it had not
	scan   bool // the hardware is to be scanned
	again  bool // and once more after a while
}

// note takes in an event.
func (i *inventory) note(e gpu.Event, at time.Time) news {
	rule := xidRules[e.XID]
	if e.XID != 0 && rule.marks == ignored {
		return news{}
	}
	c, bad := causeOf(e, i.recoveryOf(e.UUID))
	if !bad || e.UUID == "" {
		return news{scan: true, again: e.XID != 0}
	}
	causes, changed := add(i.faults[e.UUID].Causes, c, at, i.load)
	if !changed {
		// Its effects are no news, unless they tell of a further link or that the
		// GPU is gone.
		return news{scan: e.Kind == gpu.EventLink || e.Kind == gpu.EventLost}
	}
	i.setCauses(e.UUID, causes)
	return news{marked: true, scan: true, again: true}
}

// recoveryOf returns what the driver last asked for to repair the GPU.
func (i *inventory) recoveryOf(uuid string) gpu.RecoveryAction {
	for _, s := range i.known {
		if s.gpu.UUID == uuid {
			return s.gpu.Recovery
		}
	}
	return ""
}

// node gives every GPU that is known. One that does not answer is linked to
// nobody.
func (i *inventory) node() gpu.Node {
	node := i.driver
	for _, address := range i.addresses() {
		s := i.known[address]
		if s.err != nil {
			s.gpu.Links = nil
		}
		node.GPUs = append(node.GPUs, s.gpu.Lend(i.lent))
	}
	return node
}

// devices gives the status of every device that is published.
func (i *inventory) devices() []DeviceStatus {
	devices := []DeviceStatus{}
	for _, address := range i.addresses() {
		s := i.known[address]
		d := DeviceStatus{Name: address.DeviceName(), Address: address, UUID: s.gpu.UUID}
		d.Reason, d.Message = i.wrong(s)
		d.Healthy = d.Reason == ""
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b DeviceStatus) int { return strings.Compare(a.Name, b.Name) })
	return devices
}

// wrong says what keeps a GPU from new claims: the first reason in a word that a
// taint can carry, and all of them in a message. Both are empty for a healthy GPU.
func (i *inventory) wrong(s sighting) (value, message string) {
	var values, all []string
	for _, c := range i.faults[s.gpu.UUID].Causes {
		values, all = append(values, c.Value), append(all, c.Message)
	}
	if s.err != nil {
		values, all = append(values, reason(s.err)), append(all, s.err.Error())
	} else if v, m := fabricCause(s.gpu.FabricState); v != "" {
		values, all = append(values, v), append(all, m)
	}
	if len(values) == 0 {
		return "", ""
	}
	return values[0], strings.Join(all, "; ")
}

// withFault returns the GPU of a sighting that answers, with its fault for those
// who would give it to a claim.
func (i *inventory) withFault(s sighting) gpu.GPU {
	g := s.gpu
	causes := i.faults[g.UUID].Causes
	fabric, message := fabricCause(g.FabricState)
	switch {
	case len(causes) > 0:
		g.Fault = fmt.Sprintf("%s: %s", messages(causes), remedy(causes))
	case fabric != "":
		g.Fault = fmt.Sprintf("%s: %s", message, fabricRemedy)
	}
	return g
}

func (i *inventory) unhealthy() catalog.Unhealthy {
	unhealthy := catalog.Unhealthy{}
	for _, d := range i.devices() {
		if !d.Healthy {
			unhealthy[d.Address] = d.Reason
		}
	}
	return unhealthy
}

// missing joins what keeps the node from being complete; nil if all GPUs
// answer.
func (i *inventory) missing() error {
	errs := []error{i.looked}
	silent := map[gpu.PCIAddress]error{}
	for _, u := range i.unreadable {
		if u.Address == nil {
			errs = append(errs, u.Problem())
			continue
		}
		silent[*u.Address] = u.Err
	}
	if i.looked == nil {
		for address, s := range i.known {
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

// failed joins the faults of GPUs that answer all the same, and of those that have
// never answered; nil if there are none.
func (i *inventory) failed() error {
	var errs []error
	published := map[string]bool{}
	for _, address := range i.addresses() {
		s := i.known[address]
		published[s.gpu.UUID] = true
		if _, message := i.wrong(s); message != "" && s.err == nil {
			errs = append(errs, fmt.Errorf("GPU at %s: %s", address, message))
		}
	}
	for _, uuid := range i.faulty() {
		if f := i.faults[uuid]; !published[uuid] {
			errs = append(errs, fmt.Errorf("GPU %s at %s: %s", uuid, cmp.Or(f.Address, "an unknown address"), messages(f.Causes)))
		}
	}
	return errors.Join(errs...)
}

// unsettled reports whether a GPU that answers has not joined its fabric yet.
func (i *inventory) unsettled() bool {
	return slices.ContainsFunc(i.answer(), func(g gpu.GPU) bool {
		value, _ := fabricCause(g.FabricState)
		return value != ""
	})
}

// modeInTheWay reports whether a GPU has a compute mode other than the default.
func (i *inventory) modeInTheWay() bool {
	for _, s := range i.known {
		if mode := s.gpu.ComputeMode; mode != "" && mode != gpu.ComputeModeDefault {
			return true
		}
	}
	return false
}

// find gives the GPU at the address if it answers.
func (i *inventory) find(address gpu.PCIAddress) (gpu.GPU, error) {
	s, known := i.known[address]
	switch {
	case known && s.err == nil:
		return i.withFault(s).Lend(i.lent), nil
	case known:
		return gpu.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, s.err)
	}
	for _, u := range i.unreadable {
		if u.Address != nil && *u.Address == address {
			return gpu.GPU{}, fmt.Errorf("GPU at %s does not answer: %w", address, u.Err)
		}
	}
	return gpu.GPU{}, fmt.Errorf("GPU at %s: %w on this node", address, gpu.ErrNotFound)
}

func (i *inventory) addresses() []gpu.PCIAddress {
	return slices.SortedFunc(maps.Keys(i.known), gpu.PCIAddress.Compare)
}

func (i *inventory) deviceNames() []string {
	var names []string
	for _, address := range i.addresses() {
		names = append(names, address.DeviceName())
	}
	return names
}

func (i *inventory) answering() []string {
	var uuids []string
	for _, g := range i.answer() {
		uuids = append(uuids, g.UUID)
	}
	return uuids
}

// answer gives the GPUs that do, in order.
func (i *inventory) answer() []gpu.GPU {
	var gpus []gpu.GPU
	for _, address := range i.addresses() {
		if s := i.known[address]; s.err == nil {
			gpus = append(gpus, i.withFault(s))
		}
	}
	return gpus
}

// all gives the status of all GPUs together, under a name. Who watches GPUs can
// go on while there is one to watch.
func (i *inventory) all(name string) DeviceStatus {
	if len(i.answer()) == 0 {
		return DeviceStatus{Name: name, Reason: "lost", Message: "no GPU of the node answers"}
	}
	return DeviceStatus{Name: name, Healthy: true}
}

// reason names an error in a word that a taint can carry.
func reason(err error) string {
	switch {
	case errors.Is(err, gpu.ErrTimeout):
		return "timeout"
	case errors.Is(err, gpu.ErrNotReady):
		return "driver-not-ready"
	case errors.Is(err, gpu.ErrPermission):
		return "permission-denied"
	default:
		return "lost"
	}
}
