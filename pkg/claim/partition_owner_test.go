// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

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

// loseAnnotations removes the annotations from the spec of a claim, as if an older
// release had written it.
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
		// again is set if the claim is prepared again before it ends.
		again bool
		want  string
	}{
		"an administrator's, dynamic after static":                      {theirs: true, static: true, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, dynamic after static, prepared again":      {theirs: true, static: true, again: true, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, spec of an older release":                  {theirs: true, static: true, between: func(w *migWorld) { w.loseAnnotations(c) }, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, spec of an older release, prepared again":  {theirs: true, static: true, again: true, between: func(w *migWorld) { w.loseAnnotations(c) }, want: "0 on: 1g.10gb@2\n"},
		"an administrator's, static as before":                          {theirs: true, static: true, staticNext: true, again: true, want: "0 on: 1g.10gb@2\n"},
		"the driver's":                                                  {want: ""},
		"the driver's, prepared again":                                  {again: true, want: ""},
		"the driver's, static after dynamic":                            {staticNext: true, want: ""},
		"the driver's, static after dynamic, prepared again":            {staticNext: true, again: true, want: ""},
		"the driver's, spec of an older release":                        {between: func(w *migWorld) { w.loseAnnotations(c) }, want: "0 on: 1g.10gb@2\n"},
		"the driver's, in whose place is another":                       {between: func(w *migWorld) { w.remake("1g.10gb", 2) }, want: "0 on: 1g.10gb@2\n"},
		"the driver's, in whose place is another of another size":       {between: func(w *migWorld) { w.remake("2g.20gb", 2) }, want: "0 on: 2g.20gb@2\n"},
		"the driver's, without its compute instance":                    {between: func(w *migWorld) { w.halve(0) }, want: ""},
		"the driver's, gone, and made again for the claim":              {again: true, between: func(w *migWorld) { w.administrator("destroys", 0, "1g.10gb", 2) }, want: ""},
		"the driver's, gone with an older spec, and made again":         {again: true, between: func(w *migWorld) { w.loseAnnotations(c); w.administrator("destroys", 0, "1g.10gb", 2) }, want: ""},
		"the driver's, without its compute instance, and made complete": {again: true, between: func(w *migWorld) { w.halve(0) }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			w.static = test.static
			if test.theirs {
				w.administrator("makes", 0, "1g.10gb", 2)
			}
			w.scan()
			if _, err := w.start().Prepare(once(), c); err != nil {
				t.Fatal(err)
			}
			if test.between != nil {
				test.between(w)
			}
			w.static = test.staticNext
			m := w.loseRecord(c)
			if test.again {
				before := strings.Join(w.uuids(0), " ")
				devices, err := m.Prepare(once(), c)
				if err != nil {
					t.Fatal(err)
				}
				if before != "" && test.between == nil && devices[0].UUID != before {
					t.Errorf("prepared again with %s, want what its containers have: %s", devices[0].UUID, before)
				}
			}
			if err := m.Unprepare(once(), c.UID); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Recover(once()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, w.cuts()); diff != "" {
				t.Errorf("cuts (-want +got):\n%s", diff)
			}
			if got := w.held(m); got != "" {
				t.Errorf("still held:\n%s", got)
			}
		})
	}
}

// The agent creates a lost partition again for a claim whose record is lost, and dies
// or fails before the claim's spec names it. The new partition is not left behind.
func TestAPartitionRecreatedForALostClaimIsNotLeftBehind(t *testing.T) {
	const device = h100 + "-mig-1g-10gb-2"
	c := newClaim("cut", device)
	points := 0
	for died := true; died; points++ {
		w := newMIGWorld(t, t.TempDir(), "dgx-h100")
		if _, err := w.start().Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
		w.administrator("destroys", 0, "1g.10gb", 2)
		w.loseRecord(c)
		w.faults = &faults{dieAt: points + 1}
		died, _ = dies(func() error { _, err := w.start().Prepare(once(), c); return err })
		m, _ := w.restart(once())
		if err := m.Unprepare(once(), c.UID); err != nil {
			t.Errorf("died at point %d: unprepare: %v", points+1, err)
		}
		if got := w.cuts() + w.held(m); got != "" {
			t.Fatalf("died at point %d: left behind:\n%s", points+1, got)
		}
	}
	if points < 10 {
		t.Errorf("only %d points to die at: is the fault injection connected?", points)
	}
}
