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

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const part = h100 + "-mig-1g-10gb-2"

func TestSharesOfOneMIGDevice(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m, other := w.start(), w.start()
	a, b := pieces("a", piece{device: part, memory: "2Gi"}), pieces("b", piece{device: part, memory: "4Gi"})
	first, err := m.Prepare(once(), a)
	must(t, err)
	second, err := other.Prepare(once(), b)
	must(t, err)
	uuid := w.uuids(0)[0]
	if first[0].UUID != uuid || second[0].UUID != uuid {
		t.Errorf("%s and %s, want both on %s", first[0].UUID, second[0].UUID, uuid)
	}
	if diff := cmp.Diff(part+" of "+uuid+"=4096M, 41%\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "6Gi"}))
	if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "6Gi are held by 2 other claims") {
		t.Errorf("more than is left: %v", err)
	}
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "3Gi", config: config("ShareConfig", `"processes":5`)}))
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "a share of 3Gi has 1 of the 6 processes that MPS admits at a time to the device with 9984Mi") {
		t.Errorf("more clients than its part of those of a seventh of the GPU: %v", err)
	}
	// No request policy keeps a MIG device's shares to the smallest.
	_, err = m.Prepare(once(), pieces("c", piece{device: part, memory: "1023Mi"}))
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "1023Mi of memory; the smallest share on this node has 1Gi") {
		t.Errorf("less than the smallest share: %v", err)
	}
	for _, device := range []string{part, h100, h100 + "-ts"} {
		if _, err := m.Prepare(once(), pieces("d", piece{device: device})); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("%s: %v, want %v", device, err, gpu.ErrInUse)
		}
	}
	// The last claim destroys the partition, also if another claim created it.
	must(t, other.Unprepare(once(), a.UID))
	if diff := cmp.Diff("0 on: 1g.10gb@2\n", w.cuts()); diff != "" {
		t.Errorf("cuts (-want +got):\n%s", diff)
	}
	must(t, m.Unprepare(once(), b.UID))
	wantNothing(t, w.left(m))
}

func TestAnAdministratorsPartitionIsSharedAndStays(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	w.static = true
	w.administrator("makes", 0, "1g.10gb", 2)
	w.scan()
	m := w.start()
	for _, name := range []string{"a", "b"} {
		must(t, errOf(m.Prepare(once(), pieces(name, piece{device: part, memory: "2Gi"}))))
	}
	for _, name := range []string{"a", "b"} {
		must(t, m.Unprepare(once(), pieces(name).UID))
	}
	if diff := cmp.Diff("0 on: 1g.10gb@2\n", w.left(m)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestAWholeMIGDeviceThatProcessesShare(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m, c := w.start(), pieces("c", piece{device: part, config: config("MigConfig", `"sharing":{"strategy":"MPS","mps":{"threadPercentage":30,"memoryLimit":"3Gi"}}`)})
	must(t, errOf(m.Prepare(once(), c)))
	if diff := cmp.Diff(part+" of "+w.uuids(0)[0]+"=3072M, 30%\n", w.supervisor.String()); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
	two := pieces("two", piece{device: h100Other + "-mig-1g-10gb-0", request: "r", config: config("MigConfig", together)}, piece{device: h100Other + "-mig-1g-10gb-1", request: "r"})
	if _, err := m.Prepare(once(), two); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "a CUDA process uses one MIG device; make a request of each") {
		t.Errorf("two of them: %v", err)
	}
	must(t, m.Unprepare(once(), c.UID))
	wantNothing(t, w.left(m))
}

// A reset removes the partition while claims share it. Recovery creates one partition
// again, and the daemon serves it.
func TestASharedPartitionIsCreatedAgainAfterAReset(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m := w.start()
	all := []*resourceapi.ResourceClaim{pieces("a", piece{device: part, memory: "2Gi"}), pieces("b", piece{device: part, memory: "4Gi"})}
	for _, c := range all {
		must(t, errOf(m.Prepare(once(), c)))
	}
	before := w.uuids(0)
	must(t, w.sim.ResetGPU(0))
	m, _ = w.restart(t.Context())
	anew := w.uuids(0)
	if len(anew) != 1 || anew[0] == before[0] || !strings.Contains(w.supervisor.String(), " of "+anew[0]+"=") {
		t.Errorf("before %v, now %v with daemons\n%s", before, anew, w.supervisor)
	}
	for _, c := range slices.Backward(all) {
		devices, err := m.Prepare(once(), c)
		if err != nil || devices[0].UUID != anew[0] {
			t.Errorf("%s: %+v, %v", c.Name, devices, err)
		}
	}
	for _, c := range all {
		must(t, m.Unprepare(once(), c.UID))
	}
	wantNothing(t, w.left(m))
}

// A share whose record is lost is still a share: its device is not assigned to a
// claim as a whole, its partition and daemon stay, and its ceilings are not lowered.
func TestALostShare(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	m := w.start()
	lost, small := pieces("lost", piece{device: part, memory: "5Gi"}), pieces("small", piece{device: part, memory: "2Gi"})
	other := pieces("other", piece{device: part, memory: "1Gi"})
	for _, c := range []*resourceapi.ResourceClaim{small, lost} {
		must(t, errOf(m.Prepare(once(), c)))
	}
	before := w.supervisor.String()
	must(t, os.WriteFile(w.recordPath(lost), []byte("x"), 0o600))
	m, report := w.restart(t.Context())
	if len(report.Unrecorded) != 1 || len(report.Swept["StartMPS"]) != 0 {
		t.Errorf("report %+v", report)
	}
	if _, err := m.Prepare(once(), pieces("whole", piece{device: part})); !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "another claim holds "+part+" (unrecorded)") {
		t.Errorf("the device as a whole: %v, want %v", err, gpu.ErrInUse)
	}
	if _, err := m.Prepare(once(), other); err != nil {
		t.Errorf("one more share: %v", err)
	}
	for _, c := range []*resourceapi.ResourceClaim{small, other} {
		must(t, m.Unprepare(once(), c.UID))
	}
	w.restart(t.Context())
	if diff := cmp.Diff("0 on: 1g.10gb@2\n"+before, w.cuts()+w.supervisor.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := m.Held(t.Context())
	if err != nil || len(all) != 1 || all[0].Devices[0].ShareID == nil || all[0].Devices[0].Terms.Share == nil {
		t.Errorf("held %+v, %v, want the share as one", all, err)
	}
	t.Run("not prepared again", func(t *testing.T) {
		if _, err := m.Prepare(once(), lost); !errors.Is(err, gpu.ErrNotFound) {
			t.Errorf("got %v, want %v", err, gpu.ErrNotFound)
		}
		if diff := cmp.Diff(before, w.supervisor.String()); diff != "" {
			t.Errorf("daemons (-want +got):\n%s", diff)
		}
	})
	t.Run("unprepared", func(t *testing.T) {
		must(t, m.Unprepare(once(), lost.UID))
		left := strings.Split(w.left(m), "\n")
		if left = slices.DeleteFunc(left, func(f string) bool { return strings.HasPrefix(f, "records/quarantine/") || f == "" }); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// If the agent dies at any point of prepare or unprepare, recovery leaves the claim
// prepared or absent. The claim has every kind of sharing. Another claim shares all
// its devices meanwhile.
func TestDyingAtEveryPointOfSharing(t *testing.T) {
	sim, dir := dgxH100(t), t.TempDir()
	const other = "gpu-52-00"
	mix := func(name, memory, larger string) *resourceapi.ResourceClaim {
		return pieces(name,
			piece{device: part, memory: memory},
			piece{device: h100Other, memory: larger, config: config("ShareConfig", `"processes":2`)},
			piece{device: h100Other, memory: memory},
			piece{device: other + "-ts", config: interval(gpu.TimeSliceLong)},
		)
	}
	neighbor, c := mix("neighbor", "2Gi", "4Gi"), mix("dying", "3Gi", "5Gi")
	for _, goal := range []string{"prepare", "unprepare", "prepare with namespaces", "unprepare with namespaces"} {
		goal, namespaces := strings.CutSuffix(goal, " with namespaces")
		atEveryPoint(t, 10, func(t *testing.T, point int) bool {
			w := inMIGWorld(t, fmt.Sprintf("%s/%s-%t-%d", dir, goal, namespaces, point), sim).withSharing()
			w.setNamespaces(namespaces)
			w.exclusive = true
			m := w.start()
			_, err := m.Prepare(once(), neighbor)
			must(t, err)
			alone := w.left(m)
			_, err = m.Prepare(once(), c)
			must(t, err)
			both := w.left(m)
			if goal == "prepare" {
				must(t, m.Unprepare(once(), c.UID))
			}
			if diff := cmp.Diff(alone, w.left(m)); goal == "prepare" && diff != "" {
				t.Fatalf("(-before +after):\n%s", diff)
			}
			w.faults = &faults{dieAt: point}
			died, _ := dies(func() error {
				dying := w.start()
				if goal == "unprepare" {
					return dying.Unprepare(once(), c.UID)
				}
				_, err := dying.Prepare(once(), c)
				return err
			})
			m, _ = w.restart(t.Context())
			if got := w.left(m); got != alone && got != both {
				t.Errorf("%s: neither nothing nor all (-nothing +got):\n%s", goal, cmp.Diff(alone, got))
			}
			for _, c := range []*resourceapi.ResourceClaim{neighbor, c} {
				must(t, m.Unprepare(once(), c.UID))
			}
			if got := w.left(m); got != "" {
				t.Fatalf("%s: left behind:\n%s", goal, got)
			}
			return died
		})
	}
}

// A claim with every kind of sharing is the only one on its devices.
func TestDyingAtEveryPointOfTheFirstShare(t *testing.T) {
	dir := t.TempDir()
	c := pieces("dying", piece{device: "gpu-00-00", memory: "20Gi"}, piece{device: "gpu-01-00", config: config("GpuConfig", together)}, piece{device: "gpu-02-00-ts", config: interval(gpu.TimeSliceShort)})
	atEveryPoint(t, 30, func(t *testing.T, point int) bool {
		w := newNamespaceWorld(t, fmt.Sprintf("%s/%d", dir, point), 3)
		w.exclusive = true
		w.faults = &faults{dieAt: point}
		died, _ := dies(func() error {
			dying := w.start()
			if _, err := dying.Prepare(once(), c); err != nil {
				return err
			}
			return dying.Unprepare(once(), c.UID)
		})
		m, report := w.restart(t.Context())
		if got := w.left(m); got != "" && len(report.Verified) != 1 {
			t.Errorf("%+v, left behind:\n%s", report, got)
		}
		must(t, m.Unprepare(once(), c.UID))
		if got := w.left(m); got != "" {
			t.Fatalf("left behind:\n%s", got)
		}
		return died
	})
}

func TestAWholeMIGDeviceHasNoMoreClientsThanItAdmits(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	_, err := w.start().Prepare(once(), pieces("a", piece{device: part, config: config("ShareConfig", `"processes":7`)}))
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "has 6 of the 6 processes that MPS admits") || !strings.HasSuffix(err.Error(), "; declare 6 in the ShareConfig") {
		t.Errorf("error %v, want ErrInvalid with the reason", err)
	}
}
