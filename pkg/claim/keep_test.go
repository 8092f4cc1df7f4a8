// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	firstSeventh  = h100 + "-mig-1g-10gb-2"
	secondSeventh = h100 + "-mig-1g-10gb-3"
	upperHalf     = h100 + "-mig-3g-40gb-4"
)

// keptFiles are the records of a GPU of which the devices stay.
func keptFiles(devices ...string) string {
	var b strings.Builder
	for _, device := range devices {
		b.WriteString("kept/" + device + ".record\n")
	}
	return b.String() + "modes/" + h100 + ".record\n"
}

// keeping is a node that keeps the devices of a layout.
func keeping(t *testing.T) *migWorld {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	w.keep = []string{firstSeventh, secondSeventh, upperHalf}
	return w
}

// use prepares and unprepares a claim for devices. It returns the UUIDs of the first GPU's
// MIG devices while the claim is prepared.
func (w *migWorld) use(m *claim.Manager, devices ...string) []string {
	w.t.Helper()
	c := newClaim("user", devices...)
	must(w.t, errOf(m.Prepare(once(), c)))
	uuids := w.uuids(0)
	must(w.t, m.Unprepare(once(), c.UID))
	return uuids
}

func (w *migWorld) wantLeft(m *claim.Manager, want string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.left(m)); diff != "" {
		w.t.Fatalf("left (-want +got):\n%s", diff)
	}
}

func TestTheNextClaimFindsAKeptPartition(t *testing.T) {
	w := keeping(t)
	m := w.start()
	before := w.use(m, firstSeventh)
	w.wantLeft(m, keptFiles(firstSeventh)+"0 on: 1g.10gb@2\n")
	m, report := w.restart(t.Context())
	if len(report.Swept) > 0 {
		t.Errorf("swept %v", report.Swept)
	}
	if after := w.use(m, firstSeventh); !slices.Equal(before, after) {
		t.Errorf("MIG devices %q, then %q: not the same one", before, after)
	}
	w.use(m, secondSeventh)
	w.wantLeft(m, keptFiles(firstSeventh, secondSeventh)+"0 on: 1g.10gb@2 1g.10gb@3\n")
}

func TestAKeptPartitionIsDestroyedForAClaimThatNeedsItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		device string
		want   string
	}{
		"the whole GPU":                      {h100, ""},
		"a device that overlaps":             {h100 + "-mig-2g-20gb-2", ""},
		"a device that is not in the layout": {h100 + "-mig-1g-10gb-0", ""},
		"a device of the layout":             {upperHalf, keptFiles(firstSeventh, upperHalf) + "0 on: 1g.10gb@2 3g.40gb@4\n"},
		"another GPU":                        {h100Other, keptFiles(firstSeventh) + "0 on: 1g.10gb@2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := keeping(t)
			m := w.start()
			w.use(m, firstSeventh)
			w.use(m, tc.device)
			w.wantLeft(m, tc.want)
		})
	}
}

func TestAKeptPartitionThatAClaimUsesStays(t *testing.T) {
	w := keeping(t)
	m := w.start()
	w.use(m, firstSeventh, secondSeventh)
	user := newClaim("long", firstSeventh)
	must(t, errOf(m.Prepare(once(), user)))
	w.keep = nil
	must(t, errOf(m.Recover(t.Context())))
	if got := w.cuts(); got != "0 on: 1g.10gb@2\n" {
		t.Errorf("cuts %q, want only the used one", got)
	}
	must(t, m.Unprepare(once(), user.UID))
	w.wantLeft(m, "")
}

func TestASweepDestroysDevicesThatNoLongerStay(t *testing.T) {
	w := keeping(t)
	m := w.start()
	w.use(m, firstSeventh, upperHalf)
	w.keep = []string{upperHalf}
	must(t, errOf(m.Recover(t.Context())))
	w.wantLeft(m, keptFiles(upperHalf)+"0 on: 3g.40gb@4\n")
	w.keep = nil
	report, err := m.Recover(t.Context())
	must(t, err)
	if swept := report.Swept["CreatePartition"]; !slices.Equal(swept, []string{h100}) {
		t.Errorf("swept %q", report.Swept)
	}
	w.wantLeft(m, "")
}

func TestAnAdministratorsPartitionIsNotTakenForAKeptOne(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(w *migWorld)
		want      string
	}{
		"destroyed":        {func(w *migWorld) { w.administrator("destroys", 0, "1g.10gb", 2) }, ""},
		"replaced":         {func(w *migWorld) { w.remake("1g.10gb", 2) }, "modes/" + h100 + ".record\n0 on: 1g.10gb@2\n"},
		"a damaged record": {func(w *migWorld) { w.damage(firstSeventh) }, "modes/" + h100 + ".record\n0 on: 1g.10gb@2\n"},
		"a reboot":         {func(w *migWorld) { w.reboot() }, ""},
		"made after a reboot": {func(w *migWorld) {
			w.reboot()
			w.administrator("makes", 0, "1g.10gb", 2)
		}, "0 on: 1g.10gb@2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := keeping(t)
			w.use(w.start(), firstSeventh)
			tc.meanwhile(w)
			w.keep = nil
			m, _ := w.restart(t.Context())
			left := slices.DeleteFunc(strings.SplitAfter(w.left(m), "\n"), func(line string) bool { return strings.HasPrefix(line, "kept/quarantine/") })
			require.Same(t, "left", tc.want, strings.Join(left, ""))
		})
	}
}

// damage damages the record of a device that stays.
func (w *migWorld) damage(device string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.dir, "kept", device+".record"), []byte("x"), 0o600))
}

// Another program can destroy the compute instance of a kept partition. The next claim
// completes the partition.
func TestAHalfOfAKeptPartitionIsCompleted(t *testing.T) {
	w := keeping(t)
	m := w.start()
	w.use(m, firstSeventh)
	w.halve(0)
	w.use(m, firstSeventh)
	w.keep = nil
	must(t, errOf(m.Recover(t.Context())))
	w.wantLeft(m, "")
}

// A GPU instance without a compute instance has no UUID. Without a claim it would take the
// capacity of the GPU, because the inventory knows this driver's by their UUIDs.
func TestASweepDestroysTheHalfOfAKeptPartition(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(w *migWorld)
		want      string
	}{
		"another program destroys the compute instance": {func(w *migWorld) { w.halve(0) }, ""},
		"the process dies while it is destroyed for a claim": {func(w *migWorld) {
			w.faults = &faults{dieAt: 2}
			dying := w.start()
			if died, _ := dies(func() error { return errOf(dying.Prepare(once(), newClaim("whole", h100))) }); !died {
				w.t.Fatalf("the process has not died")
			}
			w.faults = &faults{}
			if got := w.cuts(); got != "0 on: 1g.10gb@2(empty)\n" {
				w.t.Fatalf("cuts %q, want a half", got)
			}
		}, ""},
		"an administrator's of another profile is in its place": {func(w *migWorld) {
			w.administrator("destroys", 0, "1g.10gb", 2)
			w.remake("2g.20gb", 2)
			w.administrator("makes", 0, "1g.10gb", 0)
			w.halve(0)
		}, "modes/" + h100 + ".record\n0 on: 1g.10gb@0(empty) 2g.20gb@2(empty)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := keeping(t)
			w.use(w.start(), firstSeventh)
			tc.meanwhile(w)
			m, _ := w.restart(t.Context())
			w.wantLeft(m, tc.want)
		})
	}
}

// A full disk does not keep a claim from ending, whether or not its device is recorded.
func TestAFullDiskKeepsNoClaimOfALayout(t *testing.T) {
	for name, c := range map[string]struct {
		// keptAlready is set if the layout had the device when it was made.
		keptAlready bool
		want        string
	}{
		"a device of the layout stays":                       {keptAlready: true, want: "0 on: 1g.10gb@2\n"},
		"a device that joined the layout later is destroyed": {want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			layout := []string{firstSeventh}
			if c.keptAlready {
				w.keep = layout
			}
			m, user := w.start(), newClaim("user", firstSeventh)
			must(t, errOf(m.Prepare(once(), user)))
			w.keep = layout
			w.faults = &faults{full: 1, err: syscall.ENOSPC}
			m = w.start()
			if err := m.Unprepare(once(), user.UID); err != nil {
				t.Errorf("the pod cannot end: %v", err)
			}
			require.Same(t, "held", "", w.held(m))
			require.Same(t, "cuts", c.want, w.cuts())
		})
	}
}

// loseRecord empties the record of a claim and returns a process that has recovered
// since.
func (w *migWorld) loseRecord(c *resourceapi.ResourceClaim) *claim.Manager {
	w.t.Helper()
	must(w.t, os.WriteFile(w.recordPath(c), nil, 0o600))
	m, report := w.restart(once())
	if len(report.Unrecorded) != 1 {
		w.t.Fatalf("report %+v, want the claim to be without a record", report)
	}
	return m
}

// loseAnnotations removes the annotations from the spec of a claim, which prove that the driver
// made its partition.
func (w *migWorld) loseAnnotations(c *resourceapi.ResourceClaim) {
	w.t.Helper()
	data, err := os.ReadFile(w.specPath(c))
	must(w.t, err)
	var spec specs.Spec
	must(w.t, json.Unmarshal(data, &spec))
	for i := range spec.Devices {
		spec.Devices[i].Annotations = nil
	}
	data, err = json.Marshal(spec)
	must(w.t, err)
	must(w.t, os.WriteFile(w.specPath(c), data, 0o644))
}

// The hardware does not record which program created a partition. The agent must not
// destroy a partition that an administrator created, even if the record is lost or the
// agent restarts with other flags.
func TestAPartitionIsDestroyedOnlyIfTheDriverCreatedIt(t *testing.T) {
	const device = h100 + "-mig-1g-10gb-2"
	c := newClaim("cut", device)
	for name, test := range map[string]struct {
		// theirs is set if an administrator created the partition, and static
		// if the agent that prepared the claim ran with static partitions.
		theirs, static bool
		between        func(*migWorld)
		staticNext     bool
		want           string
	}{
		"an administrator's, dynamic after static":     {theirs: true, static: true, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, static as before":         {theirs: true, static: true, staticNext: true, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, spec without annotations": {theirs: true, static: true, between: func(w *migWorld) { w.loseAnnotations(c) }, want: "0 on: 1g.10gb@2\n"},
		"the driver's":                                            {want: ""},
		"the driver's, static after dynamic":                      {staticNext: true, want: ""},
		"the driver's, spec without annotations":                  {between: func(w *migWorld) { w.loseAnnotations(c) }, want: "0 on: 1g.10gb@2\n"},
		"the driver's, in whose place is another":                 {between: func(w *migWorld) { w.remake("1g.10gb", 2) }, want: "0 on: 1g.10gb@2\n"},
		"the driver's, in whose place is another of another size": {between: func(w *migWorld) { w.remake("2g.20gb", 2) }, want: "0 on: 2g.20gb@2\n"},
		"the driver's, without its compute instance":              {between: func(w *migWorld) { w.halve(0) }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			w.static = test.static
			if test.theirs {
				w.administrator("makes", 0, "1g.10gb", 2)
			}
			w.scan()
			must(t, errOf(w.start().Prepare(once(), c)))
			if test.between != nil {
				test.between(w)
			}
			w.static = test.staticNext
			m := w.loseRecord(c)
			must(t, m.Unprepare(once(), c.UID))
			must(t, errOf(m.Recover(once())))
			require.Same(t, "cuts", test.want, w.cuts())
			wantNothing(t, w.held(m))
		})
	}
}
