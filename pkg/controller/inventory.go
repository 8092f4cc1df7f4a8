package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// inventory is all that is known of the node's GPUs. A GPU that has answered
// once stays in it: a device that disappears while a claim holds it would
// confuse the scheduler, so it is marked instead.
type inventory struct {
	driver     gpu.Node // without its GPUs
	known      map[gpu.PCIAddress]sighting
	unreadable []gpu.Unreadable
	faults     map[string]fault // by UUID
	looked     error            // of the last look as a whole
	lent       []gpu.Lent       // by device plugins
}

// sighting is a GPU as it last answered, without what claims had made of it,
// and why it does not answer now.
type sighting struct {
	gpu gpu.GPU
	err error
}

// fault is what an event told of a GPU.
type fault struct {
	reason  string // a label value
	message string
}

func newInventory() *inventory {
	return &inventory{known: map[gpu.PCIAddress]sighting{}, faults: map[string]fault{}}
}

// observe takes in a look at the node on which claims hold devices, and reports
// whether other GPUs answer than before.
func (i *inventory) observe(node gpu.Node, err error, held catalog.Held) (others bool) {
	before := i.answering()
	i.looked, i.unreadable = err, node.Unreadable
	if err == nil && node.DriverVersion != "" {
		i.driver = gpu.Node{DriverVersion: node.DriverVersion, CUDADriverVersion: node.CUDADriverVersion}
	}
	answers := map[gpu.PCIAddress]bool{}
	for _, g := range node.GPUs {
		answers[g.Address] = true
		// What an event told holds until the GPU is reset. After a reset, a
		// reload of the driver or an exchange it comes back from being lost;
		// one that was only slow does not.
		if s := i.known[g.Address]; s.err != nil && !errors.Is(s.err, gpu.ErrTimeout) {
			delete(i.faults, g.UUID)
		}
		before := i.known[g.Address].gpu
		i.known[g.Address] = sighting{gpu: without(g, held, before.MIG.Enabled)}
	}
	for address, s := range i.known {
		if !answers[address] {
			s.err = i.whyNot(address)
			i.known[address] = s
		}
	}
	return !slices.Equal(before, i.answering())
}

// without takes off a GPU what claims have made of it. A mode that is on while
// claims hold partitions is theirs, unless it was on before or there are other
// partitions: they switch it on with the first and off with the last.
func without(g gpu.GPU, held catalog.Held, wasOn bool) gpu.GPU {
	parts := held.PartsOf(g.Address)
	g.MIG.Partitions = slices.DeleteFunc(slices.Clone(g.MIG.Partitions), func(p gpu.Partition) bool {
		return slices.Contains(parts, gpu.DeviceName{Kind: gpu.KindMIG, Address: g.Address, Profile: p.Profile, Start: p.Placement.Start})
	})
	if len(parts) > 0 && len(g.MIG.Partitions) == 0 && !wasOn {
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
	if i.looked != nil {
		return i.looked
	}
	return fmt.Errorf("%w: the driver no longer lists it", gpu.ErrLost)
}

// note takes in an event, and reports whether the hardware is worth another
// look.
func (i *inventory) note(e gpu.Event) bool {
	if e.XID != 0 && applicationXIDs[e.XID] {
		return false
	}
	f := fault{}
	switch description, fatal := fatalXIDs[e.XID]; {
	case fatal:
		f = fault{reason: fmt.Sprintf("xid-%d", e.XID), message: fmt.Sprintf("XID %d: %s", e.XID, description)}
	case e.Kind == gpu.EventECC:
		f = fault{reason: "ecc", message: "uncorrectable ECC error"}
	}
	// The first fault is the cause and the following ones its effects. They
	// are no news, unless they tell of a further link or that the GPU is gone.
	if _, marked := i.faults[e.UUID]; marked && f.reason != "" {
		return e.Kind == gpu.EventLink || e.Kind == gpu.EventLost
	}
	if f.reason != "" && e.UUID != "" {
		i.faults[e.UUID] = f
	}
	return true
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
		if f, faulty := i.faults[s.gpu.UUID]; faulty {
			d.Reason, d.Message = f.reason, f.message
		} else if s.err != nil {
			d.Reason, d.Message = reason(s.err), s.err.Error()
		}
		d.Healthy = d.Reason == ""
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b DeviceStatus) int { return strings.Compare(a.Name, b.Name) })
	return devices
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

// failed joins the faults of GPUs that answer all the same; nil if there are
// none.
func (i *inventory) failed() error {
	var errs []error
	for _, address := range i.addresses() {
		s := i.known[address]
		if f, faulty := i.faults[s.gpu.UUID]; faulty && s.err == nil {
			errs = append(errs, fmt.Errorf("GPU at %s: %s", address, f.message))
		}
	}
	return errors.Join(errs...)
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
		return s.gpu.Lend(i.lent), nil
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
			gpus = append(gpus, s.gpu)
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
