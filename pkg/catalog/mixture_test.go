// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

// holding is what a claim has of a device.
type holding struct {
	name           kind.Name
	counted        bool // by capacity, as opposed to exclusively
	memory         int64
	compute, slots int64
	seats          int64
	asked          bool // for an amount of memory
}

// mixture is a node with claims of every kind and a changing offer. It keeps
// separate accounts.
type mixture struct {
	*rapid.T
	catalog  catalog.Inputs
	made     []gpu.GPU // with all of their memory
	hardware gpu.Node
	mig      *nvmlsim.MIG // of each GPU
	node     *allocator.Node
	claims   map[string][]holding
	prepared map[string]bool // claims that the agent knows of
	shown    map[string]resourceapi.Device
}

// publish publishes the node's current devices to the scheduler, as the controller
// does.
func (m *mixture) publish() {
	held := catalog.Held{}
	for name := range m.prepared {
		for _, h := range m.claims[name] {
			held[h.name] = held[h.name] || h.counted
		}
	}
	resources := catalog.New(m.catalog).Resources(m.hardware, held)
	m.node.Publish(resources)
	before := m.shown
	m.shown = map[string]resourceapi.Device{}
	for _, slice := range resources.Pools[m.catalog.Pool].Slices {
		for _, device := range slice.Devices {
			m.shown[device.Name] = device
		}
	}
	for name, counted := range held {
		device, shown := m.shown[name.String()]
		if !shown {
			m.Fatalf("%s is held and no longer published", name)
		}
		was, known := before[name.String()]
		memory, wasMemory := device.Capacity[v1alpha1.CapacityMemory].Value, was.Capacity[v1alpha1.CapacityMemory].Value
		if counted && known && (device.AllowMultipleAllocations == nil || memory.Cmp(wasMemory) != 0) {
			m.Fatalf("%s is held, and has %s of memory now and had %s, shareable: %v", name, &memory, &wasMemory, device.AllowMultipleAllocations != nil)
		}
	}
}

// reconfigure changes the settings of a node that can change while it has claims. Claims
// keep devices of the earlier offer only if they are prepared.
func (m *mixture) reconfigure() {
	for name := range m.claims {
		m.prepared[name] = true
	}
	m.configure()
	m.relayout()
}

// configure draws the settings of a node that can change while it has claims.
func (m *mixture) configure() {
	config := &m.catalog.NodeConfig
	config.Offer = ""
	for _, word := range []string{"share", "mig", "timeslice", "seat"} {
		if rapid.Bool().Draw(m.T, word) {
			config.Offer += catalog.Offer("," + word)
		}
	}
	config.Shares.ComputeOvercommit = rapid.SampledFrom([]float64{0, 1, 1.5, 3}).Draw(m.T, "overcommit")
	config.Shares.Smallest = rapid.SampledFrom([]int64{0, 1, 512 << 20}).Draw(m.T, "smallest")
	config.MIG.Profiles.All = rapid.Bool().Draw(m.T, "all")
	config.MIG.GPUs = rapid.IntRange(0, 1).Draw(m.T, "GPUs that are cut")
	config.Shares.Units = config.Shares.Units.With(kind.TimeSlice, rapid.SampledFrom([]int{0, 1, 5}).Draw(m.T, "slots"))
}

// relayout changes the layout of the GPUs, or removes it.
func (m *mixture) relayout() {
	if rapid.Bool().Draw(m.T, "layout") {
		m.catalog.Partitions = nil
	} else if layout, valid := randomLayout(m.T, m.hardware); valid {
		m.catalog.Partitions = layout
	}
}

// reboot clears the prepared claims, and restores the GPUs. They have all of their
// memory or, if ECC takes some, less. Claims with devices that are no longer
// offered were drained before.
func (m *mixture) reboot() {
	offered := map[string]resourceapi.Device{}
	for _, slice := range catalog.New(m.catalog).Resources(m.hardware, nil).Pools[m.catalog.Pool].Slices {
		for _, device := range slice.Devices {
			offered[device.Name] = device
		}
	}
	for name, claim := range m.claims {
		if slices.ContainsFunc(claim, func(h holding) bool {
			device, there := offered[h.name.String()]
			return !there || h.counted && device.AllowMultipleAllocations == nil
		}) {
			m.free(name)
		}
	}
	clear(m.prepared)
	clear(m.shown)
	m.hardware.GPUs = slices.Clone(m.made)
	for i := range m.hardware.GPUs {
		if g := &m.hardware.GPUs[i]; rapid.Bool().Draw(m.T, "ECC") {
			g.MemoryBytes -= g.MemoryBytes / 16
			g.MIG.Profiles = slices.Clone(g.MIG.Profiles)
			for j := range g.MIG.Profiles {
				g.MIG.Profiles[j].MemoryBytes -= g.MIG.Profiles[j].MemoryBytes / 16
			}
		}
	}
}

// free ends a claim.
func (m *mixture) free(name string) {
	m.node.Free(name)
	delete(m.claims, name)
	delete(m.prepared, name)
}

// all returns the memory of a device, in whole Mi, that claims can use: without the driver's
// reserve and, if the device has shares, without the MPS server's memory; and NVML's total
// of a GPU that claims can only have as a whole.
func (m *mixture) all(name kind.Name) int64 {
	i := slices.IndexFunc(m.hardware.GPUs, func(g gpu.GPU) bool { return g.Address == name.Address })
	usable := m.hardware.GPUs[i].MemoryBytes - m.hardware.GPUs[i].ReservedBytes
	if name.Kind == kind.MIG {
		usable = profileOf(m.hardware.GPUs[i], name).MemoryBytes
	}
	switch shared := m.shown[name.String()].AllowMultipleAllocations != nil; {
	case shared:
		usable -= m.server()
	case name.Kind == kind.GPU:
		usable = m.hardware.GPUs[i].MemoryBytes
	}
	return wholeMi(usable)
}

// server returns the memory of an MPS server, or 0 on a node without MPS.
func (m *mixture) server() uint64 {
	if m.catalog.Shares.MPS {
		return m.catalog.Shares.ServerMemory
	}
	return 0
}

func wholeMi(bytes uint64) int64 { return int64(bytes >> 20 << 20) }

func (m *mixture) slots() int64 { return int64(m.catalog.Shares.Units.Of(kind.TimeSlice)) }

func (m *mixture) seats() int64 { return int64(m.catalog.Shares.Units.Of(kind.Seat)) }

// seatsOf reports whether a GPU can have seats of the smallest share or more.
func (m *mixture) seatsOf(g gpu.GPU) bool {
	all := wholeMi(g.MemoryBytes - g.ReservedBytes - m.server())
	return m.catalog.Shares.MPS && g.MPSLimits() && wholeMi(uint64(all/m.seats())) >= wholeMi(uint64(max(1<<20, m.catalog.Shares.Smallest)))
}

func (m *mixture) compute() int64 { return int64(100 * max(1, m.catalog.Shares.ComputeOvercommit)) }

// on returns the holdings of a GPU.
func (m *mixture) on(address gpu.PCIAddress) []holding {
	var all []holding
	for _, claim := range slices.Sorted(maps.Keys(m.claims)) {
		for _, h := range m.claims[claim] {
			if h.name.Address == address {
				all = append(all, h)
			}
		}
	}
	return all
}

// read enters a result into the accounts, as an agent does that prepares it.
func (m *mixture) read(result resourceapi.DeviceRequestAllocationResult) holding {
	name, err := kind.Parse(result.Device)
	if err != nil {
		m.Fatal(err)
	}
	h := holding{name: name, counted: result.ShareID != nil}
	all := m.shown[result.Device].Capacity[v1alpha1.CapacityMemory].Value
	if name.Kind.HasUnits() {
		all = *resource.NewQuantity(m.all(name), resource.BinarySI)
	}
	share, err := m.catalog.Shares.Share(name.Kind, all, result.ConsumedCapacity)
	// A node without MPS has no seats.
	if err != nil || name.Kind == kind.Seat && !m.catalog.Shares.MPS {
		m.Fatalf("%s is granted and would be refused: %v", result.Device, err)
	}
	h.memory, h.compute, h.slots = int64(share.Memory), int64(share.Compute), int64(share.Slots)
	if name.Kind == kind.Seat {
		seats := result.ConsumedCapacity[v1alpha1.CapacitySeats]
		// A seat is a part of the memory that there is: of less after a reboot with less.
		h.memory, h.seats = 0, seats.Value()
	}
	return h
}

// check compares the accounts with the hardware after an allocation: no byte is
// allocated twice, and no GPU is in two uses. A GPU that has come back with less
// memory may have less than its earlier claims were allocated, and must get no more
// claims.
func (m *mixture) check(claim string) {
	for _, g := range m.hardware.GPUs {
		held := m.on(g.Address)
		kinds := map[kind.Kind]bool{}
		memory := map[kind.Name]int64{}
		exclusive := map[kind.Name]int{}
		var compute, slots, seats int64
		for _, h := range held {
			kinds[h.name.Kind] = true
			memory[h.name] += h.memory
			compute += h.compute
			slots += h.slots
			seats += h.seats
			if !h.counted {
				exclusive[h.name]++
			}
		}
		for name, taken := range memory {
			switch {
			case taken > m.all(name) && slices.ContainsFunc(m.claims[claim], func(h holding) bool { return h.name == name }):
				m.Fatalf("%s: %d bytes of %d are taken\n%s", name, taken, m.all(name), m.node)
			case exclusive[name] > 1:
				m.Fatalf("%s has two owners\n%s", name, m.node)
			}
		}
		if parts := slices.Collect(maps.Keys(memory)); kinds[kind.MIG] && len(kinds) == 1 && !possible(m.mig, parts) {
			m.Fatalf("the hardware does not admit %v together\n%s", parts, m.node)
		}
		// After a change to fewer slots or less compute, the GPU gets no more claims.
		granted := slices.ContainsFunc(m.claims[claim], func(h holding) bool { return h.name.Address == g.Address })
		if len(kinds) > 1 || granted && (compute > m.compute() || slots > m.slots()) || seats > m.seats() {
			m.Fatalf("GPU at %s is in use as %v, with %d percent of compute, %d slots and %d seats\n%s", g.Address, slices.Collect(maps.Keys(kinds)), compute, slots, seats, m.node)
		}
	}
}

// hasCapacity reports whether the device certainly has the wanted capacity: its GPU
// is not in use, or is only used by devices that share it and are still offered.
func (m *mixture) hasCapacity(device resourceapi.Device, want holding) bool {
	name, err := kind.Parse(device.Name)
	if err != nil {
		m.Fatal(err)
	}
	if name.Kind != want.name.Kind || name.Profile != want.name.Profile || len(device.Taints) > 0 {
		return false
	}
	held := m.on(name.Address)
	if len(held) == 0 {
		return want.memory <= m.all(name) && want.compute <= 100 && want.slots <= m.slots() && want.seats <= m.seats()
	}
	used := want
	if used.memory == 0 && want.name.Kind != kind.TimeSlice {
		used.memory = m.all(name)
	}
	if policy := device.Capacity[v1alpha1.CapacityMemory].RequestPolicy; policy != nil && policy.ValidRange != nil {
		used.memory = max(used.memory, policy.ValidRange.Min.Value())
	}
	there := false
	for _, h := range held {
		if h.name.Kind != name.Kind || h.name == name && !h.counted {
			return false
		}
		if h.name == name {
			there = true
			used.memory, used.compute, used.slots = used.memory+h.memory, used.compute+h.compute, used.slots+h.slots
			used.seats += h.seats
		}
	}
	if name.Kind == kind.TimeSlice {
		return used.slots <= m.slots() && used.memory <= m.all(name)
	}
	if name.Kind == kind.Seat {
		return used.seats <= m.seats()
	}
	return there && device.AllowMultipleAllocations != nil && used.memory <= m.all(name) && used.compute <= m.compute()
}

// mustFit reports whether an unused GPU certainly has the wanted capacity. It
// follows the hardware and the offer, and not the published slices.
func (m *mixture) mustFit(want holding) bool {
	return slices.ContainsFunc(m.hardware.GPUs, func(g gpu.GPU) bool {
		if len(m.on(g.Address)) > 0 {
			return false
		}
		_, whole := m.shown[g.Address.DeviceName()]
		switch {
		case !whole && want.name.Kind != kind.MIG:
			return false // it has a layout
		case want.name.IsPartition():
			i := slices.IndexFunc(g.MIG.Profiles, func(p gpu.ProfileInfo) bool { return p.Profile == want.name.Profile })
			return m.catalog.Offer.Partitions() && m.catalog.Partitions == nil && m.catalog.MIG.Profiles.All && m.catalog.MIG.GPUs == 0 && i >= 0 && want.memory <= wholeMi(g.MIG.Profiles[i].MemoryBytes-m.server())
		case want.name.Kind.Takes() == kind.TakesSlots:
			return m.catalog.Offer.Has(kind.TimeSlice) && !m.catalog.Exclusive && want.slots <= m.slots() && want.memory <= wholeMi(g.MemoryBytes-g.ReservedBytes-m.server())
		case want.name.Kind.Takes() == kind.TakesSeats:
			return m.catalog.Offer.Has(kind.Seat) && !m.catalog.Exclusive && want.seats <= m.seats() && m.seatsOf(g)
		default:
			return want.memory <= wholeMi(g.MemoryBytes-g.ReservedBytes-m.server())
		}
	})
}

// way is how a claim has a device, for counting.
func (h holding) way() string {
	switch {
	case h.name.Kind == kind.TimeSlice && h.asked:
		return "timeslice with memory"
	case h.name.Kind == kind.TimeSlice, !h.asked:
		return string(h.name.Kind)
	default:
		return "share of " + string(h.name.Kind)
	}
}

// draw returns a random request in the words of [claim], and the wanted holdings.
func (m *mixture) draw() (words string, want holding) {
	mib := rapid.Custom(func(t *rapid.T) int64 {
		return rapid.OneOf(rapid.SampledFrom([]int64{1024, 4096, 8192, 20480}), rapid.Int64Range(512, 90000)).Draw(t, "MiB")
	})
	share := func() string {
		if !rapid.Bool().Draw(m.T, "share") {
			return ""
		}
		n := mib.Draw(m.T, "memory")
		want.memory, want.asked = n<<20, true
		return fmt.Sprintf(" memory=%dMi", n)
	}
	want.name.Kind = rapid.SampledFrom([]kind.Kind{kind.GPU, kind.MIG, kind.TimeSlice, kind.Seat}).Draw(m.T, "kind")
	switch {
	case want.name.IsPartition():
		profiles := m.hardware.GPUs[0].MIG.Profiles
		if len(profiles) == 0 {
			return "class=mig", want
		}
		want.name.Profile = rapid.SampledFrom(profiles).Draw(m.T, "profile").Profile
		return fmt.Sprintf("class=mig profile=%s", want.name.Profile) + share(), want
	case want.name.Kind.Takes() == kind.TakesSlots:
		want.slots = rapid.Int64Range(1, 3).Draw(m.T, "slots")
		return fmt.Sprintf("class=timeslice slots=%d", want.slots) + share(), want
	case want.name.Kind.Takes() == kind.TakesSeats:
		want.seats = rapid.Int64Range(1, 3).Draw(m.T, "seats")
		return fmt.Sprintf("class=seat seats=%d", want.seats), want
	default:
		words = share()
		if rapid.Bool().Draw(m.T, "reserve") {
			want.compute = rapid.Int64Range(0, 100).Draw(m.T, "compute")
			words += fmt.Sprintf(" compute=%d", want.compute)
		}
		return words, want
	}
}

// TestMixturesNeverOvercommit allocates and frees claims at random, prepared or not. The
// claims are for whole GPUs, shares, MIG devices, shares of MIG devices and time slices.
// Meanwhile the offer and the layout change, and the node reboots with more or less memory.
// No byte is allocated twice, no GPU is in two uses, and a claim that fits is allocated.
func TestMixturesNeverOvercommit(t *testing.T) {
	t.Parallel()
	hardware, migs := map[string]gpu.Node{}, map[string]*nvmlsim.MIG{}
	for _, model := range []string{"dgx-h100", "a30-bridge", "t4", "dgx1-v100"} {
		hardware[model], migs[model] = first(t, 2, model), kindOf(t, model).MIG
	}
	shippedClasses := classes(t)
	granted := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		m := &mixture{T: rt, claims: map[string][]holding{}, prepared: map[string]bool{}}
		model := rapid.SampledFrom(slices.Sorted(maps.Keys(hardware))).Draw(rt, "model")
		m.hardware, m.mig = hardware[model], migs[model]
		m.hardware.GPUs = m.hardware.GPUs[:rapid.IntRange(1, len(m.hardware.GPUs)).Draw(rt, "GPUs")]
		m.made = m.hardware.GPUs
		m.catalog = catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{
			Shares: catalog.ShareOffer{
				MPS:          rapid.Bool().Draw(rt, "MPS"),
				Units:        kind.Numbers{kind.Seat: rapid.SampledFrom([]int{0, 1, 3, 48}).Draw(rt, "seats")},
				ServerMemory: rapid.SampledFrom([]uint64{0, 64<<20 + 1}).Draw(rt, "server"),
			},
			MIG: catalog.MIGOffer{AllowReset: true},
		}, Restrictions: catalog.Restrictions{Exclusive: rapid.IntRange(0, 9).Draw(rt, "exclusive") == 0}}
		m.configure()
		m.relayout()
		m.node = allocator.NewNode(catalog.New(m.catalog).Resources(m.hardware, nil), allocator.Features(), shippedClasses...)
		m.publish()
		for step := range rapid.IntRange(5, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 10).Draw(rt, "step") {
			case 0:
				m.reconfigure()
			case 10:
				m.reboot()
			case 1, 2:
				if names := slices.Sorted(maps.Keys(m.claims)); len(names) > 0 {
					name := rapid.SampledFrom(names).Draw(rt, "freed")
					m.free(name)
				}
			default:
				name := fmt.Sprintf("claim-%02d", step)
				words, want := m.draw()
				count := rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(rt, "count")
				results, err := m.node.Allocate(t.Context(), name, claim(fmt.Sprintf("%s count=%d", words, count)))
				if errors.Is(err, allocator.ErrNoFit) {
					if count == 1 && m.mustFit(want) {
						rt.Fatalf("%q does not fit, and a GPU is free\n%s", words, m.node)
					}
					for _, device := range m.shown {
						if count == 1 && m.hasCapacity(device, want) {
							rt.Fatalf("%q does not fit, and %s is free\n%s", words, device.Name, m.node)
						}
					}
					break
				}
				if err != nil {
					rt.Fatalf("%q: %v", words, err)
				}
				for _, result := range results {
					m.claims[name] = append(m.claims[name], m.read(result))
					granted[want.way()]++
				}
				if rapid.Bool().Draw(rt, "prepared") {
					m.prepared[name] = true
				}
				m.check(name)
			}
			m.publish()
		}
	})
	for _, way := range []string{"gpu", "share of gpu", "mig", "share of mig", "timeslice", "timeslice with memory", "seat"} {
		if granted[way] == 0 {
			t.Errorf("nothing was granted as %s, so it was not tried: %v", way, granted)
		}
	}
}
