// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
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

func (m *model) prepare(t *rapid.T) {
	c := m.some()
	devices, err := m.m.Prepare(once(), c)
	if !m.free(c) {
		if !errors.Is(err, gpu.ErrInUse) {
			t.Fatalf("prepare %s: %v, want %v", c.Name, err, gpu.ErrInUse)
		}
		return
	}
	if err != nil {
		t.Fatalf("prepare %s: %v", c.Name, err)
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
	m.w.faults = &faults{dieAt: rapid.IntRange(1, 16).Draw(t, "point")}
	dying := m.w.start()
	goal := rapid.SampledFrom([]string{"prepare", "unprepare"}).Draw(t, "goal")
	_, err := dies(func() error {
		if goal == "unprepare" {
			return dying.Unprepare(once(), c.UID)
		}
		_, err := dying.Prepare(once(), c)
		return err
	})
	refused := goal == "prepare" && !m.free(c) && errors.Is(err, gpu.ErrInUse)
	if err != nil && !refused {
		t.Fatalf("%s %s: %v", goal, c.Name, err)
	}
	m.restart(t)

	before, had := m.promised[c.Name]
	switch phase := m.phaseOf(c); {
	case phase == claim.Absent && (goal == "unprepare" || !had):
		delete(m.promised, c.Name)
	case phase == claim.Prepared && (had || goal == "prepare" && m.free(c)):
		m.promised[c.Name] = promise{c, claim.Prepared}
	case phase == claim.Unrecorded && had && before.phase == claim.Unrecorded:
	case phase == claim.Absent && before.phase == claim.Unrecorded:
		// The process died while it prepared the claim again from its spec.
		delete(m.promised, c.Name)
	default:
		t.Fatalf("%s %s died: it was %+v and is %s", goal, c.Name, before, phase)
	}
}

func (m *model) phaseOf(c *resourceapi.ResourceClaim) claim.Phase {
	all, err := m.m.Held(once())
	if err != nil {
		m.t.Fatalf("%v", err)
	}
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
	if err := os.RemoveAll(m.w.cdiDir()); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
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
		if err := os.RemoveAll(w.dir); err != nil {
			t.Fatal(err)
		}
	})
}
