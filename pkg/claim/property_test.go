// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const claimCount = 5

// owned is a claim with the pieces that it must hold.
type owned struct {
	claim  *resourceapi.ResourceClaim
	pieces []piece
	// lost is set if the claim has only a CDI spec and no record. The sizes of its
	// shares are unknown then.
	lost bool
	// exclusive is set if the claim was prepared when the node put GPUs with MPS shares
	// into EXCLUSIVE_PROCESS.
	exclusive bool
}

// shareModel is a simple model of a machine whose GPUs are used in every possible way.
type shareModel struct {
	t     *rapid.T
	w     *migWorld
	m     *claim.Manager
	owned map[string]owned
}

// size returns the memory of a device in bytes.
func (m *shareModel) size(name kind.Name) uint64 {
	g := m.w.gpus[name.Address]
	if info, _, known := name.FindIn(g.MIG); name.Kind == kind.MIG && known {
		return info.MemoryBytes >> 20 << 20
	}
	return (g.MemoryBytes - g.ReservedBytes) >> 20 << 20
}

// refusal returns the error with which the node refuses the pieces, nil if it prepares
// them. unknown is set if it may prepare them or refuse them as [gpu.ErrInUse].
func (m *shareModel) refusal(c owned) (refusal error, unknown bool) {
	o, had := m.owned[c.claim.Name]
	if had && !o.lost {
		return nil, false
	}
	for _, p := range c.pieces {
		if p.isPlain() && m.w.exclusive {
			return gpu.ErrNotSupported, false
		}
	}
	if had {
		return gpu.ErrNotFound, false
	}
	if !m.fits(c.claim.Name, c.pieces) {
		return gpu.ErrInUse, false
	}
	for name, o := range m.owned {
		for _, q := range o.pieces {
			for _, p := range c.pieces {
				switch {
				case name == c.claim.Name || p.device != q.device:
				case p.needsExclusive() && m.w.exclusive && q.isPlain() && !o.lost,
					p.isPlain() && q.needsExclusive() && o.exclusive && !o.lost:
					return gpu.ErrInUse, false
				case p.isPlain() && o.lost:
					unknown = true // whether it keeps the GPU exclusive
				}
			}
		}
	}
	return nil, unknown
}

// toggle changes whether the node puts GPUs with MPS shares into EXCLUSIVE_PROCESS.
func (m *shareModel) toggle(t *rapid.T) {
	m.w.exclusive = !m.w.exclusive
	m.restart(t)
}

// update installs a driver with or without MPS namespaces.
func (m *shareModel) update(t *rapid.T) {
	m.w.setNamespaces(rapid.Bool().Draw(t, "namespaces"))
	m.restart(t)
}

// checkNamespaces checks that each share of a device has a namespace of its daemon. Its
// containers must have the folder of that namespace. The daemon may have others of
// claims whose record is lost.
func (m *shareModel) checkNamespaces(t *rapid.T, got gpu.MPSDaemon, perhaps bool) {
	wanted := 0
	for name, o := range m.owned {
		for i, p := range o.pieces {
			if p.name().MPSDaemon().String() != got.Name || !p.client() || o.lost {
				continue
			}
			namespace := fmt.Sprintf("share%s%d", name, i)
			if m.bytes(p) == 0 {
				namespace = "uid" + name
			}
			pipe := "/run/sup/" + got.Name + "/pipe"
			if got.HasNamespaces() {
				pipe += "/s/" + namespace
				wanted++
				if !slices.ContainsFunc(got.Namespaces, func(n gpu.MPSNamespace) bool { return n.Name == namespace }) {
					t.Fatalf("daemon %s has no namespace %s", renderDaemon(got), namespace)
				}
			}
			if edits := m.w.edits(o.claim); !strings.Contains(edits, " "+pipe+" at "+pipe+"\n") {
				t.Fatalf("daemon %s, and containers of %s have\n%s", renderDaemon(got), name, edits)
			}
		}
	}
	if len(got.Namespaces) > wanted && !perhaps {
		t.Fatalf("daemon %s, and only %d namespaces have a share", renderDaemon(got), wanted)
	}
}

// bytes returns the memory that a piece takes. A GPU has four seats.
func (m *shareModel) bytes(p piece) uint64 {
	if p.seats > 0 {
		return uint64(p.seats) * (m.size(p.name()) / 4 >> 20 << 20)
	}
	return p.bytes()
}

// fits reports whether the claim can hold the pieces together with the pieces of all
// other claims.
func (m *shareModel) fits(name string, wanted []piece) bool {
	taken := map[string]uint64{}
	for _, p := range wanted {
		taken[p.device] += m.bytes(p)
	}
	for other, o := range m.owned {
		if other == name {
			continue
		}
		for _, q := range o.pieces {
			if slices.ContainsFunc(wanted, func(p piece) bool {
				if o.lost && p.name().Kind == kind.TimeSlice {
					q.config = "" // unknown without the record
				}
				return !p.canCoexist(q)
			}) {
				return false
			}
			if !o.lost {
				taken[q.device] += m.bytes(q)
			}
		}
	}
	for _, p := range wanted {
		if m.bytes(p) > 0 && taken[p.device] > m.size(p.name()) {
			return false
		}
	}
	return true
}

// some draws one of the claims, with its promised pieces or a new allocation.
func (m *shareModel) some() owned {
	name := fmt.Sprintf("c%d", rapid.IntRange(0, claimCount-1).Draw(m.t, "claim"))
	if o, ok := m.owned[name]; ok {
		return o
	}
	var all []piece
	for range rapid.IntRange(1, 3).Draw(m.t, "pieces") {
		p := somePiece(m.t)
		sum := m.bytes(p)
		for _, q := range all {
			if q.device == p.device {
				sum += m.bytes(q)
			}
		}
		if !slices.ContainsFunc(all, func(q piece) bool { return !p.canCoexist(q) }) && sum <= m.size(p.name()) {
			all = append(all, p)
		}
	}
	return owned{claim: pieces(name, all...), pieces: all}
}

func (m *shareModel) prepare(t *rapid.T) {
	c := m.some()
	away := rapid.IntRange(0, 9).Draw(t, "supervisor") == 0
	if away {
		m.w.supervisor.err = gpu.ErrNotReady
	}
	devices, err := m.m.Prepare(once(), c.claim)
	m.w.supervisor.err = nil
	switch refusal, unknown := m.refusal(c); {
	case err == nil && refusal == nil:
		if _, had := m.owned[c.claim.Name]; !had {
			c.exclusive = m.w.exclusive
		}
		m.owned[c.claim.Name] = c
		m.checkDevices(t, c, devices)
	case away && errors.Is(err, gpu.ErrNotReady) && c.usesMPS():
	case unknown && errors.Is(err, gpu.ErrInUse):
	case refusal == nil || !errors.Is(err, refusal):
		t.Fatalf("prepare %s with %v: %v", c.claim.Name, c.pieces, err)
	}
	if away {
		m.restart(t) // what could not be undone
	}
}

func (o owned) usesMPS() bool {
	return slices.ContainsFunc(o.pieces, func(p piece) bool { return p.client() })
}

// checkDevices compares the devices returned by Prepare with the pieces of the claim.
func (m *shareModel) checkDevices(t *rapid.T, c owned, devices []claim.Device) {
	ids := map[string]bool{}
	for i, d := range devices {
		if d.Name.String() != c.pieces[i].device || ids[d.CDIDeviceIDs[0]] {
			t.Fatalf("%s: device %+v, want %+v with an ID of its own", c.claim.Name, d, c.pieces[i])
		}
		ids[d.CDIDeviceIDs[0]] = true
		if mps := d.Strategy() == v1alpha1.StrategyMPS; mps != c.pieces[i].client() {
			t.Fatalf("%s: %+v has the share %+v", c.claim.Name, c.pieces[i], d.Terms)
		}
	}
}

func (m *shareModel) unprepare(t *rapid.T) {
	c := m.some()
	must(t, m.m.Unprepare(once(), c.claim.UID))
	delete(m.owned, c.claim.Name)
}

// crash kills a process during a prepare or unprepare, and starts the next one.
func (m *shareModel) crash(t *rapid.T) {
	c := m.some()
	_, had := m.owned[c.claim.Name]
	goal, err := m.w.crash(t, 50, c.claim)
	refusal, unknown := m.refusal(c)
	if unknown && refusal == nil && err != nil {
		refusal = gpu.ErrInUse
	}
	if err != nil && (refusal == nil || !errors.Is(err, refusal)) {
		t.Fatalf("%s %s: %v", goal, c.claim.Name, err)
	}
	m.restart(t)
	switch phase := m.w.phaseOf(m.m, c.claim); {
	case phase == claim.Unrecorded && c.lost && goal == "prepare":
	case phase == claim.Unrecorded && c.lost:
		// Some devices may be released. The kubelet got no response, so it retries.
		must(t, m.m.Unprepare(once(), c.claim.UID))
		delete(m.owned, c.claim.Name)
	case phase == claim.Prepared && (had && !c.lost || goal == "prepare" && refusal == nil):
		if !had {
			c.exclusive = m.w.exclusive
		}
		m.owned[c.claim.Name] = c
	case phase == claim.Absent && (goal == "unprepare" || !had):
		delete(m.owned, c.claim.Name)
	default:
		t.Fatalf("%s %s died: promised before: %t, now %s", goal, c.claim.Name, had, phase)
	}
}

// crash kills a process at one of the points of a prepare or unprepare. It returns which, and
// the error of a process that ended before.
func (w *world) crash(t *rapid.T, points int, c *resourceapi.ResourceClaim) (goal string, err error) {
	w.faults = &faults{dieAt: rapid.IntRange(1, points).Draw(t, "point")}
	dying := w.start()
	goal = rapid.SampledFrom([]string{"prepare", "unprepare"}).Draw(t, "goal")
	_, err = dies(func() error {
		if goal == "unprepare" {
			return dying.Unprepare(once(), c.UID)
		}
		return errOf(dying.Prepare(once(), c))
	})
	return goal, err
}

func (w *world) phaseOf(m *claim.Manager, c *resourceapi.ResourceClaim) claim.Phase {
	all, err := m.Held(once())
	must(w.t, err)
	for _, h := range all {
		if h.UID == c.UID {
			return h.Phase
		}
	}
	return claim.Absent
}

func (m *shareModel) restart(*rapid.T) { m.m, _ = m.w.restart(once()) }

func (m *shareModel) reboot(t *rapid.T) {
	m.w.reboot()
	if m.anyLost() || rapid.Bool().Draw(t, "specs in memory") {
		must(t, os.RemoveAll(m.w.cdiDir()))
	}
	clear(m.owned)
	m.restart(t)
}

func (m *shareModel) anyLost() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(m.owned)), func(o owned) bool { return o.lost })
}

// reset removes all partitions of a GPU while claims hold them. The claims get them back.
func (m *shareModel) reset(t *rapid.T) {
	if m.anyLost() {
		return
	}
	must(t, m.w.sim.ResetGPU(rapid.IntRange(0, 1).Draw(t, "gpu")))
	m.restart(t)
}

// loseSpecs removes the CDI specs. The claims get them back.
func (m *shareModel) loseSpecs(t *rapid.T) {
	if m.anyLost() {
		return
	}
	must(t, os.RemoveAll(m.w.cdiDir()))
	m.restart(t)
}

// damage destroys a record.
func (m *shareModel) damage(t *rapid.T) {
	c := m.some()
	if _, had := m.owned[c.claim.Name]; !had {
		return
	}
	path := m.w.recordPath(c.claim)
	if data, err := os.ReadFile(path); err == nil { // a lost record is gone
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		if rapid.Bool().Draw(t, "cut") {
			data = data[:at]
		} else {
			data[at] ^= 0x80
		}
		must(t, os.WriteFile(path, data, 0o600))
	}
	c.lost = true
	m.owned[c.claim.Name] = c
	m.restart(t)
}

// forget restarts the supervisor without its daemons.
func (m *shareModel) forget(t *rapid.T) {
	clear(m.w.supervisor.daemons)
	m.restart(t)
}

// check compares the state of the machine with the promised pieces.
func (m *shareModel) check(t *rapid.T) {
	var held []string
	parts := map[int]map[string]bool{0: {}, 1: {}}
	daemons, atLeast := map[string]gpu.MPSDaemon{}, map[string]bool{}
	intervals, anySlice := map[string]string{}, map[string]bool{}
	perhaps := map[string]bool{}
	exclusive, anyMode := map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.owned)) {
		o := m.owned[name]
		phase := claim.Prepared
		if o.lost {
			phase = claim.Unrecorded
		}
		line := fmt.Sprintf("team-a/%s %s", name, phase)
		for _, p := range o.pieces {
			line += " " + p.device
			n := p.name()
			onGPU := n.Address.DeviceName()
			daemon := n.MPSDaemon().String()
			if o.lost {
				perhaps[daemon] = true
				anySlice[onGPU] = true
				anyMode[onGPU] = true
			}
			if p.needsExclusive() && o.exclusive && !o.lost {
				exclusive[onGPU] = true
			}
			if n.Kind == kind.MIG {
				parts[map[string]int{h100: 0, h100Other: 1}[onGPU]][fmt.Sprintf(" %s@%d", n.Profile, n.Start)] = true
			}
			switch {
			case o.lost:
				atLeast[daemon] = true
			case p.client():
				d := gpu.MPSDaemon{Name: daemon, MemoryLimits: []uint64{0}}
				if bytes := m.bytes(p); bytes > 0 {
					d.ThreadPercentage, d.MemoryLimits[0] = int(max(1, 100*bytes/m.size(n))), bytes
				}
				if p.seats > 0 {
					d.ThreadPercentage = 25 * p.seats
				}
				if other, also := daemons[daemon]; also {
					d.ThreadPercentage, d.MemoryLimits[0] = max(d.ThreadPercentage, other.ThreadPercentage), max(d.MemoryLimits[0], other.MemoryLimits[0])
				}
				daemons[daemon] = d
			case p.config != "" && n.Kind == kind.TimeSlice:
				intervals[onGPU] = p.config
			}
		}
		held = append(held, line+"\n")
	}
	if diff := cmp.Diff(strings.Join(held, ""), m.w.held(m.m)); diff != "" {
		t.Fatalf("held (-want +got):\n%s", diff)
	}
	var cuts string
	for index := range 2 {
		if len(parts[index]) > 0 {
			at := func(p string) string { return p[strings.Index(p, "@"):] }
			sorted := slices.SortedFunc(maps.Keys(parts[index]), func(a, b string) int { return strings.Compare(at(a), at(b)) })
			cuts += fmt.Sprintf("%d on:%s\n", index, strings.Join(sorted, ""))
		}
	}
	if diff := cmp.Diff(cuts, m.w.cuts()); diff != "" {
		t.Fatalf("cuts (-want +got):\n%s", diff)
	}
	m.checkDaemons(t, daemons, atLeast, perhaps)
	m.checkLimits(t)
	for _, on := range []string{h100, h100Other} {
		address, _ := kind.Parse(on)
		now, err := m.w.timeSlices.TimeSlice(once(), address.Address)
		must(t, err)
		want := gpu.TimeSliceDefault
		for _, slice := range gpu.TimeSlices() {
			if intervals[on] == interval(slice) {
				want = slice
			}
		}
		if now != want && (intervals[on] != "" || !anySlice[on]) {
			t.Fatalf("time slice of %s is %s, want %s", on, now, want)
		}
		if is := strings.Contains(m.w.modes(), on+" ExclusiveProcess"); is != exclusive[on] && (exclusive[on] || !anyMode[on]) {
			t.Fatalf("%s is exclusive: %t, want %t", on, is, exclusive[on])
		}
	}
}

// checkLimits compares the devices that admit containers with the shares of GPUs.
func (m *shareModel) checkLimits(t *rapid.T) {
	open, err := m.w.limitFolder().Devices()
	must(t, err)
	ofClaim := map[string]int{}
	for _, id := range open {
		uid, _, _ := strings.Cut(id, "-gpu-")
		ofClaim[uid]++
	}
	for _, o := range m.owned {
		n, want := ofClaim[string(o.claim.UID)], 0
		delete(ofClaim, string(o.claim.UID))
		for _, p := range o.pieces {
			if m.w.limits && m.bytes(p) > 0 && p.name().Kind != kind.MIG {
				want++
			}
		}
		if n != want {
			t.Fatalf("%s: %d devices admit containers, want %d of %v", o.claim.Name, n, want, open)
		}
	}
	if len(ofClaim) > 0 {
		t.Fatalf("devices of no claim admit containers: %v", ofClaim)
	}
}

// checkDaemons compares the daemons with those wanted. The daemon of a share whose
// record is lost may run, with ceilings that are not lower.
func (m *shareModel) checkDaemons(t *rapid.T, want map[string]gpu.MPSDaemon, atLeast, perhaps map[string]bool) {
	there := m.w.supervisor.there()
	for name, got := range m.w.supervisor.daemons {
		if len(got.Devices) != 1 || !slices.Contains(there, got.Devices[0]) {
			t.Fatalf("daemon %s is for something that is not there", renderDaemon(got))
		}
		m.checkNamespaces(t, got, perhaps[name])
		w, wanted := want[name]
		w.Devices = got.Devices
		switch {
		case !wanted && !perhaps[name]:
			t.Fatalf("daemon %s belongs to no claim", renderDaemon(got))
		case got.HasNamespaces():
		case wanted && atLeast[name] && got.MemoryLimits[0] >= w.MemoryLimits[0] && got.ThreadPercentage >= w.ThreadPercentage:
		case wanted && renderDaemon(w) != renderDaemon(got):
			t.Fatalf("daemon %s, want %s", renderDaemon(got), renderDaemon(w))
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Fatalf("daemons that do not run: %v", want)
	}
}

// After any sequence of events the claims hold the promised pieces, and no claims
// hold conflicting devices. Nothing is left at the end.
func TestGPUsAreSharedAsPromised(t *testing.T) {
	sim, dir := dgxH100(t), t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		must(t, sim.Reboot())
		w := inMIGWorld(t, fmt.Sprintf("%s/%d", dir, run), sim).withSharing()
		w.limits = rapid.Bool().Draw(t, "the driver limits memory")
		m := &shareModel{t: t, w: w, m: w.start(), owned: map[string]owned{}}
		t.Repeat(map[string]func(*rapid.T){
			"prepare":   m.prepare,
			"prepare 2": m.prepare,
			"unprepare": m.unprepare,
			"crash":     m.crash,
			"restart":   m.restart,
			"reboot":    m.reboot,
			"reset":     m.reset,
			"loseSpecs": m.loseSpecs,
			"damage":    m.damage,
			"forget":    m.forget,
			"toggle":    m.toggle,
			"update":    m.update,
			"":          m.check,
		})
		for _, c := range m.owned {
			must(t, m.m.Unprepare(once(), c.claim.UID))
		}
		left := slices.DeleteFunc(strings.SplitAfter(m.w.left(m.m), "\n"), func(f string) bool { return strings.HasPrefix(f, "records/quarantine/") })
		if got := strings.Join(left, ""); got != "" {
			t.Fatalf("at the end, left behind:\n%s", got)
		}
		must(t, os.RemoveAll(w.dir))
	})
}

// somePiece draws a piece of one of two GPUs.
func somePiece(t *rapid.T) piece {
	on := rapid.SampledFrom([]string{h100, h100Other}).Draw(t, "GPU")
	switch rapid.SampledFrom([]string{"share", "share", "share", "plain", "part", "part", "partShare", "partShare", "whole", "together", "timeSlices", "timeSlices", "seats", "seats"}).Draw(t, "use") {
	case "share":
		return piece{device: on, memory: rapid.SampledFrom([]string{"10Gi", "30Gi", "50Gi"}).Draw(t, "memory")}
	case "plain":
		return piece{device: on, memory: "20Gi", config: config("ShareConfig", plain)}
	case "part":
		return piece{device: on + rapid.SampledFrom([]string{"-mig-1g-10gb-0", "-mig-1g-10gb-3", "-mig-3g-40gb-0"}).Draw(t, "part")}
	case "partShare":
		return piece{device: on + rapid.SampledFrom([]string{"-mig-1g-10gb-0", "-mig-3g-40gb-4"}).Draw(t, "part"), memory: rapid.SampledFrom([]string{"2Gi", "6Gi"}).Draw(t, "memory")}
	case "seats":
		return piece{device: on + "-seat", seats: rapid.IntRange(1, 3).Draw(t, "seats")}
	case "together":
		return piece{device: on, config: config("GpuConfig", together)}
	case "timeSlices":
		p := piece{device: on + "-ts", memory: rapid.SampledFrom([]string{"", "", "20Gi", "50Gi"}).Draw(t, "memory")}
		if slice := rapid.SampledFrom([]gpu.TimeSlice{"", gpu.TimeSliceShort, gpu.TimeSliceLong}).Draw(t, "interval"); slice != "" {
			p.config = interval(slice)
		}
		return p
	default:
		return piece{device: on}
	}
}

func (p piece) name() kind.Name {
	name, _ := kind.Parse(p.device)
	return name
}

func (p piece) bytes() uint64 {
	if p.memory == "" {
		return 0
	}
	memory := resource.MustParse(p.memory)
	return uint64(memory.Value())
}

// canCoexist reports whether two pieces can be held at the same time, if there is
// memory for both.
func (p piece) canCoexist(q piece) bool {
	a, b := p.name(), q.name()
	switch {
	case a.Address != b.Address:
		return true
	case a.Kind == kind.TimeSlice && b.Kind == kind.TimeSlice:
		return p.config == "" || q.config == "" || p.config == q.config
	case a.Kind == kind.Seat && b.Kind == kind.Seat:
		return true
	case a == b:
		return p.memory != "" && q.memory != ""
	default:
		return a.Kind == kind.MIG && b.Kind == kind.MIG && !excludes(p.device, q.device)
	}
}

// excludes reports whether two devices overlap on the hardware.
func excludes(a, b string) bool {
	one, _ := kind.Parse(a)
	other, _ := kind.Parse(b)
	if one.Address != other.Address {
		return false
	}
	if one.Kind == kind.GPU || other.Kind == kind.GPU {
		return true
	}
	spans := map[string]int{"1g-10gb": 1, "3g-40gb": 4} // in memory slices
	size := func(n kind.Name) int {
		return spans[fmt.Sprintf("%dg-%dgb", n.Profile.Slices, n.Profile.MemoryGB)]
	}
	return one.Start < other.Start+size(other) && other.Start < one.Start+size(one)
}

func (p piece) client() bool {
	return p.seats > 0 || p.memory != "" && p.config == "" && p.name().Kind != kind.TimeSlice || p.config == config("GpuConfig", together)
}

// needsExclusive reports whether the GPU of the piece is exclusive while a claim has
// it. The node must have that setting.
func (p piece) needsExclusive() bool {
	return p.seats > 0 || p.name().Kind == kind.GPU && p.memory != "" && p.client()
}

// isPlain reports whether the piece is a plain share of a GPU.
func (p piece) isPlain() bool { return p.name().Kind == kind.GPU && p.memory != "" && !p.client() }
