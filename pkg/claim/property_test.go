// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// promise lists the devices that a claim must hold.
type promise struct {
	claim *resourceapi.ResourceClaim
	phase claim.Phase // Prepared or Unrecorded
}

func (p promise) devices() []string {
	var names []string
	for _, r := range p.claim.Status.Allocation.Devices.Results {
		names = append(names, r.Device)
	}
	return names
}

// model is a simple model of the machine.
type model struct {
	t        *rapid.T
	w        *world
	m        *claim.Manager
	promised map[string]promise
}

const gpuCount, claimCount = 3, 5

// some draws one of the claims. A claim with a promise keeps its devices; another
// claim gets a new allocation.
func (m *model) some() *resourceapi.ResourceClaim {
	name := fmt.Sprintf("c%d", rapid.IntRange(0, claimCount-1).Draw(m.t, "claim"))
	if p, ok := m.promised[name]; ok {
		return p.claim
	}
	var devices []string
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, gpuCount-1), 1, 2, rapid.ID).Draw(m.t, "gpus") {
		devices = append(devices, gpu.PCIAddress{Bus: uint8(i)}.DeviceName())
	}
	return newClaim(name, devices...)
}

// free reports whether no other claim was promised a device of c.
func (m *model) free(c *resourceapi.ResourceClaim) bool {
	for name, p := range m.promised {
		if name == c.Name {
			continue
		}
		for _, d := range p.devices() {
			if slices.Contains(promise{claim: c}.devices(), d) {
				return false
			}
		}
	}
	return true
}

// refusal returns the error with which c is not prepared; nil if it is.
func (m *model) refusal(c *resourceapi.ResourceClaim) error {
	switch {
	case m.promised[c.Name].phase == claim.Unrecorded:
		return gpu.ErrNotFound
	case !m.free(c):
		return gpu.ErrInUse
	}
	return nil
}

func (m *model) prepare(t *rapid.T) {
	c := m.some()
	devices, err := m.m.Prepare(once(), c)
	want := m.refusal(c)
	if !errors.Is(err, want) {
		t.Fatalf("prepare %s: %v, want %v", c.Name, err, want)
	}
	if err != nil {
		return
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name.String())
	}
	m.promised[c.Name] = promise{c, claim.Prepared}
	if diff := cmp.Diff(m.promised[c.Name].devices(), names); diff != "" {
		t.Fatalf("devices of %s (-want +got):\n%s", c.Name, diff)
	}
}

func (m *model) unprepare(t *rapid.T) {
	c := m.some()
	if err := m.m.Unprepare(once(), c.UID); err != nil {
		t.Fatalf("unprepare %s: %v", c.Name, err)
	}
	delete(m.promised, c.Name)
}

// crash kills a process during a prepare or unprepare, and starts the next one. The
// claim has either finished or is in its earlier state; the disk shows which.
func (m *model) crash(t *rapid.T) {
	c := m.some()
	goal, err := m.w.crash(t, 16, c)
	refusal := m.refusal(c)
	if refused := goal == "prepare" && refusal != nil && errors.Is(err, refusal); err != nil && !refused {
		t.Fatalf("%s %s: %v", goal, c.Name, err)
	}
	m.restart(t)

	before, had := m.promised[c.Name]
	switch phase := m.w.phaseOf(m.m, c); {
	case phase == claim.Absent && (goal == "unprepare" || !had):
		delete(m.promised, c.Name)
	case phase == claim.Prepared && (had || goal == "prepare" && refusal == nil):
		m.promised[c.Name] = promise{c, claim.Prepared}
	case phase == claim.Unrecorded && before.phase == claim.Unrecorded:
	default:
		t.Fatalf("%s %s died: it was %+v and is %s", goal, c.Name, before, phase)
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

func (m *model) restart(*rapid.T) { m.m, _ = m.w.restart(once()) }

func (m *model) reboot(t *rapid.T) {
	m.w.boot++
	if rapid.Bool().Draw(t, "specs in memory") {
		m.loseSpecs(t)
	}
	for name, p := range m.promised {
		if p.phase == claim.Prepared {
			delete(m.promised, name)
		}
	}
	m.restart(t)
}

func (m *model) loseSpecs(t *rapid.T) {
	must(t, os.RemoveAll(m.w.cdiDir()))
	// A claim without a record and without a spec is unknown.
	for name, p := range m.promised {
		if p.phase == claim.Unrecorded {
			delete(m.promised, name)
		}
	}
	m.restart(t)
}

func (m *model) damage(t *rapid.T) {
	c := m.some()
	if m.promised[c.Name].phase != claim.Prepared {
		return
	}
	path := m.w.recordPath(c)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
	if rapid.Bool().Draw(t, "cut") {
		data = data[:at]
	} else {
		data[at] ^= 0x80
	}
	must(t, os.WriteFile(path, data, 0o600))
	m.promised[c.Name] = promise{c, claim.Unrecorded}
	if rapid.Bool().Draw(t, "noticed") {
		m.restart(t)
	}
}

// check compares the held devices and every file with the promises.
func (m *model) check(t *rapid.T) {
	var held, files []string
	ignored := make(map[string]bool)
	for i := range claimCount {
		p, ok := m.promised[fmt.Sprintf("c%d", i)]
		if !ok {
			continue
		}
		held = append(held, fmt.Sprintf("team-a/%s %s %s\n", p.claim.Name, p.phase, strings.Join(p.devices(), " ")))
		files = append(files, strings.SplitAfter(preparedFiles(p.claim), "\n")...)
		if p.phase == claim.Unrecorded {
			// The record stays until a process finds that it is damaged.
			ignored["records/"+string(p.claim.UID)+".record\n"] = true
		}
	}
	if diff := cmp.Diff(strings.Join(held, ""), m.w.held(m.m)); diff != "" {
		t.Fatalf("held (-want +got):\n%s", diff)
	}
	render := func(files []string) string {
		slices.Sort(files)
		return strings.Join(slices.DeleteFunc(files, func(f string) bool {
			// A temporary file from before the first record is removed when it is
			// old.
			tmp := strings.HasPrefix(f, "records/") && strings.HasSuffix(f, ".tmp\n")
			return tmp || ignored[f] || strings.HasPrefix(f, "records/quarantine/")
		}), "")
	}
	if diff := cmp.Diff(render(files), render(strings.SplitAfter(m.w.files(), "\n"))); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
}

// After any sequence of events the claims hold the promised devices, and nothing
// leaks.
func TestClaimsHoldThePromisedDevices(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		w := newWorld(t, fmt.Sprintf("%s/%d", dir, run), gpuCount)
		m := &model{t: t, w: w, m: w.start(), promised: make(map[string]promise)}
		t.Repeat(map[string]func(*rapid.T){
			"prepare":   m.prepare,
			"unprepare": m.unprepare,
			"crash":     m.crash,
			"restart":   m.restart,
			"reboot":    m.reboot,
			"loseSpecs": m.loseSpecs,
			"damage":    m.damage,
			"":          m.check,
		})
		must(t, os.RemoveAll(w.dir))
	})
}

// cutModel is a simple model of a machine with partitioned GPUs.
type cutModel struct {
	t        *rapid.T
	w        *migWorld
	m        *claim.Manager
	promised map[string]*resourceapi.ResourceClaim
}

// spans returns the memory slices of each H100 profile in this test.
func spans() map[string]int {
	return map[string]int{"1g-10gb": 1, "1g-20gb": 2, "2g-20gb": 2, "3g-40gb": 4, "4g-40gb": 4, "7g-80gb": 8}
}

// places returns the devices that can be allocated: two whole GPUs and their MIG
// devices.
func places() []string {
	var names []string
	for _, g := range []string{h100, h100Other} {
		names = append(names, g)
		for profile, starts := range map[string][]int{
			"1g-10gb": {0, 1, 2, 3, 4, 5, 6}, "1g-20gb": {0, 2, 4, 6}, "2g-20gb": {0, 2, 4}, "3g-40gb": {0, 4}, "4g-40gb": {0}, "7g-80gb": {0},
		} {
			for _, start := range starts {
				names = append(names, fmt.Sprintf("%s-mig-%s-%d", g, profile, start))
			}
		}
	}
	sort.Strings(names)
	return names
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
	size := func(n kind.Name) int {
		return spans()[fmt.Sprintf("%dg-%dgb", n.Profile.Slices, n.Profile.MemoryGB)]
	}
	return one.Start < other.Start+size(other) && other.Start < one.Start+size(one)
}

func (m *cutModel) some() *resourceapi.ResourceClaim {
	name := fmt.Sprintf("c%d", rapid.IntRange(0, claimCount-1).Draw(m.t, "claim"))
	if c, ok := m.promised[name]; ok {
		return c
	}
	var devices []string
	for _, d := range rapid.SliceOfNDistinct(rapid.SampledFrom(places()), 1, 3, rapid.ID).Draw(m.t, "devices") {
		if !slices.ContainsFunc(devices, func(other string) bool { return excludes(d, other) }) {
			devices = append(devices, d)
		}
	}
	return newClaim(name, devices...)
}

func (m *cutModel) free(c *resourceapi.ResourceClaim) bool {
	for name, other := range m.promised {
		for _, a := range devicesOf(other) {
			if name != c.Name && slices.ContainsFunc(devicesOf(c), func(b string) bool { return excludes(a, b) }) {
				return false
			}
		}
	}
	return true
}

func devicesOf(c *resourceapi.ResourceClaim) []string { return promise{claim: c}.devices() }

func (m *cutModel) prepare(t *rapid.T) {
	c := m.some()
	_, err := m.m.Prepare(once(), c)
	switch {
	case m.free(c) && err == nil:
		m.promised[c.Name] = c
	case m.free(c) || !errors.Is(err, gpu.ErrInUse):
		t.Fatalf("prepare %s with %v: %v", c.Name, devicesOf(c), err)
	}
}

func (m *cutModel) unprepare(t *rapid.T) {
	c := m.some()
	if err := m.m.Unprepare(once(), c.UID); err != nil {
		t.Fatalf("unprepare %s: %v", c.Name, err)
	}
	delete(m.promised, c.Name)
}

// crash kills a process during a prepare or unprepare, and starts the next one.
func (m *cutModel) crash(t *rapid.T) {
	c := m.some()
	goal, err := m.w.crash(t, 40, c)
	if err != nil && (m.free(c) || !errors.Is(err, gpu.ErrInUse)) {
		t.Fatalf("%s %s: %v", goal, c.Name, err)
	}
	m.restart(t)

	_, had := m.promised[c.Name]
	prepared := m.w.phaseOf(m.m, c) == claim.Prepared
	switch {
	case prepared && (had || goal == "prepare" && m.free(c)):
		m.promised[c.Name] = c
	case !prepared && (goal == "unprepare" || !had):
		delete(m.promised, c.Name)
	default:
		t.Fatalf("%s %s died: promised before: %t, prepared now: %t", goal, c.Name, had, prepared)
	}
}

func (m *cutModel) restart(*rapid.T) { m.m, _ = m.w.restart(once()) }

func (m *cutModel) reboot(t *rapid.T) {
	m.w.reboot()
	clear(m.promised)
	if rapid.Bool().Draw(t, "specs in memory") {
		must(t, os.RemoveAll(m.w.cdiDir()))
	}
	m.restart(t)
}

// reset removes all partitions of a GPU while claims hold them. The claims get them
// back.
func (m *cutModel) reset(t *rapid.T) {
	must(t, m.w.sim.ResetGPU(rapid.IntRange(0, 1).Draw(t, "gpu")))
	m.restart(t)
}

// keep changes which MIG devices stay without claims, and sweeps the others.
func (m *cutModel) keep(t *rapid.T) {
	m.w.keep = rapid.SampledFrom([][]string{
		nil,
		{h100 + "-mig-3g-40gb-4", h100 + "-mig-2g-20gb-0", h100 + "-mig-1g-10gb-2", h100 + "-mig-1g-10gb-3"},
		{h100 + "-mig-3g-40gb-0", h100 + "-mig-3g-40gb-4", h100Other + "-mig-7g-80gb-0"},
	}).Draw(t, "kept")
	must(t, errOf(m.m.Recover(t.Context())))
}

// check compares the state of the simulator with the promised devices. Devices that stay
// may be there.
func (m *cutModel) check(t *rapid.T) {
	cut := map[int][]string{}
	index := map[string]int{h100: 0, h100Other: 1}
	promised := map[string]bool{}
	var held []string
	for i := range claimCount {
		c, ok := m.promised[fmt.Sprintf("c%d", i)]
		if !ok {
			continue
		}
		held = append(held, fmt.Sprintf("team-a/%s Prepared %s\n", c.Name, strings.Join(devicesOf(c), " ")))
		for _, d := range devicesOf(c) {
			name, _ := kind.Parse(d)
			promised[d] = true
			if i := index[name.Address.DeviceName()]; name.Kind == kind.MIG {
				cut[i] = append(cut[i], fmt.Sprintf(" %d %s@%d", name.Start, name.Profile, name.Start))
			}
		}
	}
	for _, d := range m.w.keep {
		name, _ := kind.Parse(d)
		at, i := fmt.Sprintf(" %s@%d", name.Profile, name.Start), index[name.Address.DeviceName()]
		for _, line := range strings.SplitAfter(m.w.cuts(), "\n") {
			if !promised[d] && strings.HasPrefix(line, fmt.Sprintf("%d on:", i)) && strings.Contains(line, at) {
				cut[i] = append(cut[i], fmt.Sprintf(" %d%s", name.Start, at))
			}
		}
	}
	if diff := cmp.Diff(strings.Join(held, ""), m.w.held(m.m)); diff != "" {
		t.Fatalf("held (-want +got):\n%s", diff)
	}
	var cuts strings.Builder
	for index := range 2 {
		if parts := cut[index]; len(parts) > 0 {
			slices.Sort(parts) // no two start at the same place
			fmt.Fprintf(&cuts, "%d on:", index)
			for _, p := range parts {
				cuts.WriteString(p[2:])
			}
			cuts.WriteString("\n")
		}
	}
	if diff := cmp.Diff(cuts.String(), m.w.cuts()); diff != "" {
		t.Fatalf("cuts (-want +got):\n%s", diff)
	}
	if got := strings.Count(m.w.left(m.m), "modes/"); got != len(cut) {
		t.Fatalf("%d modes remembered, want %d", got, len(cut))
	}
}

// After any sequence of events the GPUs have the promised partitions. MIG mode is on
// only while they do.
func TestGPUsAreCutAsPromised(t *testing.T) {
	sim, dir := dgxH100(t), t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		must(t, sim.Reboot())
		w := inMIGWorld(t, fmt.Sprintf("%s/%d", dir, run), sim)
		m := &cutModel{t: t, w: w, m: w.start(), promised: map[string]*resourceapi.ResourceClaim{}}
		t.Repeat(map[string]func(*rapid.T){
			"prepare":   m.prepare,
			"unprepare": m.unprepare,
			"crash":     m.crash,
			"restart":   m.restart,
			"reboot":    m.reboot,
			"reset":     m.reset,
			"keep":      m.keep,
			"":          m.check,
		})
		for _, c := range m.promised {
			must(t, m.m.Unprepare(once(), c.UID))
		}
		m.w.keep = nil
		must(t, errOf(m.m.Recover(t.Context())))
		if got := m.w.left(m.m); got != "" {
			t.Fatalf("at the end, left behind:\n%s", got)
		}
		must(t, os.RemoveAll(w.dir))
	})
}

// Two processes prepare many claims concurrently, on one GPU and on eight.
func TestManyClaimsPartitionConcurrently(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	processes := []*claim.Manager{w.start(), w.start()}
	var all sync.WaitGroup
	for round, g := range []string{"1b", "43", "52", "61", "9d", "c3", "d1", "df"} {
		for i, devices := range [][]string{
			{"mig-1g-10gb-0", "mig-1g-10gb-1"}, {"mig-2g-20gb-2"}, {"mig-3g-40gb-4"},
		} {
			for j, d := range devices {
				devices[j] = fmt.Sprintf("gpu-%s-00-%s", g, d)
			}
			c := newClaim(fmt.Sprintf("claim-%d-%d", round, i), devices...)
			m := processes[(round+i)%2]
			all.Go(func() {
				for range 3 {
					prepared, err := m.Prepare(t.Context(), c)
					if err != nil {
						t.Errorf("%s: %v", c.Name, err)
						return
					}
					index := round
					there := w.uuids(index)
					for _, d := range prepared {
						if !slices.Contains(there, d.UUID) {
							t.Errorf("%s: %s is %s, which is not there: %v", c.Name, d.Name, d.UUID, there)
						}
					}
					if err := m.Unprepare(t.Context(), c.UID); err != nil {
						t.Errorf("%s: %v", c.Name, err)
					}
				}
			})
		}
	}
	all.Wait()
	wantNothing(t, w.left(processes[0]))
}
