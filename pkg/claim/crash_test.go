// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// If the agent dies at any point of prepare, recovery leaves the claim prepared or
// absent, and the next prepare succeeds.
func TestDyingAtEveryPointOfPrepare(t *testing.T) {
	points := 0
	for died := true; died; points++ {
		w := newWorld(t, t.TempDir(), 2)
		other, c := newClaim("other", "gpu-01-00"), newClaim("dying", "gpu-00-00")
		if _, err := w.start().Prepare(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		w.faults = &faults{dieAt: points + 1}
		died, _ = dies(func() error { _, err := w.start().Prepare(t.Context(), c); return err })

		m, report := w.restart(t.Context())
		// A temporary file from before the first record is removed at the next
		// change of the record, or when it is old.
		got := strings.ReplaceAll(w.files(), "records/uid-dying.tmp\n", "")
		switch {
		case got == preparedFiles(other) && len(report.Verified) == 1:
		case len(report.Verified) == 2 && got == preparedFiles(other, c):
		default:
			t.Errorf("died at point %d: %+v\n%s", points+1, report, got)
		}
		if _, err := m.Prepare(t.Context(), c); err != nil {
			t.Errorf("died at point %d: prepare again: %v", points+1, err)
		}
		if diff := cmp.Diff(preparedFiles(other, c), w.files()); diff != "" {
			t.Errorf("died at point %d: files (-want +got):\n%s", points+1, diff)
		}
	}
	if points < 9 {
		t.Errorf("only %d points to die at: is the fault injection connected?", points)
	}
}

func TestDyingAtEveryPointOfUnprepare(t *testing.T) {
	points := 0
	for died := true; died; points++ {
		w := newWorld(t, t.TempDir(), 1)
		c := newClaim("dying", "gpu-00-00")
		if _, err := w.start().Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		w.faults = &faults{dieAt: points + 1}
		died, _ = dies(func() error { return w.start().Unprepare(t.Context(), c.UID) })

		m, report := w.restart(t.Context())
		got := strings.ReplaceAll(w.files(), "records/uid-dying.tmp\n", "")
		if want := preparedFiles(c); got != "" && got != want {
			t.Errorf("died at point %d: %+v\n%s", points+1, report, got)
		}
		// The kubelet got no response, so it retries.
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Errorf("died at point %d: unprepare again: %v", points+1, err)
		}
		if got := w.held(m); got != "" {
			t.Errorf("died at point %d: still held:\n%s", points+1, got)
		}
		if _, err := m.Prepare(once(), newClaim("next", "gpu-00-00")); err != nil {
			t.Errorf("died at point %d: the GPU is not free: %v", points+1, err)
		}
	}
	if points < 6 {
		t.Errorf("only %d points to die at: is the fault injection connected?", points)
	}
}

// If the disk becomes full at any point of prepare, the error says so and nothing is
// left behind.
func TestAFullDiskWhilePreparing(t *testing.T) {
	for full := 1; ; full++ {
		w := newWorld(t, t.TempDir(), 1)
		c := newClaim("one", "gpu-00-00")
		w.faults = &faults{full: full, err: fmt.Errorf("write: %w", syscall.ENOSPC)}
		m := w.start()
		_, err := m.Prepare(t.Context(), c)
		if err == nil {
			if full < 5 {
				t.Errorf("the disk was never full")
			}
			break
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("full from point %d: %v, want %v", full, err, syscall.ENOSPC)
		}
		if got := w.files() + w.held(m); got != "" {
			t.Errorf("full from point %d, left behind:\n%s", full, got)
		}
	}
}

func TestAFullDiskDoesNotKeepAClaimFromGoingAway(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("one", "gpu-00-00")
	if _, err := w.start().Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.faults = &faults{full: 1, err: syscall.ENOSPC}
	if err := w.start().Unprepare(t.Context(), c.UID); err != nil {
		t.Error(err)
	}
	if got := w.files(); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

func TestRecoverAfterAReboot(t *testing.T) {
	for name, wiped := range map[string]bool{"specs in memory": true, "specs on disk": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), 2)
			a, b := newClaim("a", "gpu-00-00"), newClaim("b", "gpu-01-00")
			if _, err := w.start().Prepare(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			w.faults = &faults{dieAt: 6}
			if died, err := dies(func() error { _, err := w.start().Prepare(t.Context(), b); return err }); !died {
				t.Fatal(err)
			}
			w.boot++
			if wiped {
				if err := os.RemoveAll(w.cdiDir()); err != nil {
					t.Fatal(err)
				}
			}
			_, report := w.restart(t.Context())
			if diff := cmp.Diff(claim.Report{Forgotten: []types.UID{"uid-a", "uid-b"}}, report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if got := w.files(); got != "" {
				t.Errorf("left behind:\n%s", got)
			}
		})
	}
}

func TestRecoverRepairsALostSpec(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("one", "gpu-00-00")
	if _, err := w.start().Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.specPath(c)); err != nil {
		t.Fatal(err)
	}
	_, report := w.restart(t.Context())
	if diff := cmp.Diff(claim.Report{Verified: []types.UID{"uid-one"}}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(preparedFiles(c), w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A damaged record must not free its GPU, because its containers may still run.
func TestADamagedRecordDoesNotFreeItsGPU(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	c, fine := newClaim("damaged", "gpu-00-00"), newClaim("fine", "gpu-01-00")
	m := w.start()
	if _, err := m.Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Prepare(t.Context(), fine); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.recordPath(c), []byte("record 1 sha256:00\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(m *claim.Manager, when string) {
		t.Helper()
		_, err := m.Prepare(once(), newClaim("thief", "gpu-00-00"))
		if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "another claim holds gpu-00-00 (unrecorded)") {
			t.Errorf("%s: %v, want a refusal", when, err)
		}
	}
	refused(m, "before the recovery")

	m, report := w.restart(t.Context())
	want := claim.Report{
		Verified: []types.UID{"uid-fine"}, Quarantined: []types.UID{"uid-damaged"}, Unrecorded: []types.UID{"uid-damaged"},
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	refused(m, "after recovery")
	if diff := cmp.Diff("team-a/damaged Unrecorded gpu-00-00\nteam-a/fine Prepared gpu-01-00\n", w.held(m)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	reason, err := os.ReadFile(w.dir + "/records/quarantine/uid-damaged.record.reason")
	if err != nil || !strings.Contains(string(reason), "corrupt") {
		t.Errorf("reason %q, %v", reason, err)
	}

	t.Run("it can be prepared again", func(t *testing.T) {
		if _, err := m.Prepare(once(), c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("team-a/damaged Prepared gpu-00-00\nteam-a/fine Prepared gpu-01-00\n", w.held(m)); diff != "" {
			t.Errorf("held (-want +got):\n%s", diff)
		}
	})
	t.Run("it can be unprepared", func(t *testing.T) {
		if err := os.WriteFile(w.recordPath(c), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.Unprepare(t.Context(), c.UID); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Prepare(once(), newClaim("next", "gpu-00-00")); err != nil {
			t.Errorf("the GPU is not free: %v", err)
		}
	})
}

// After a downgrade, the agent does not change a claim that a newer release prepared,
// and does not assign its devices to another claim.
func TestARecordOfANewerReleaseIsLeftAlone(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("newer", "gpu-00-00")
	if _, err := w.start().Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.recordPath(c), []byte("record 2 something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := w.files()
	m := w.start()
	_, prepareErr := m.Prepare(once(), c)
	_, recoverErr := m.Recover(t.Context())
	for op, err := range map[string]error{"prepare": prepareErr, "unprepare": m.Unprepare(t.Context(), c.UID), "recover": recoverErr} {
		if !errors.Is(err, gpu.ErrNotSupported) || !strings.Contains(err.Error(), "written by a newer release") {
			t.Errorf("%s: %v, want it refused", op, err)
		}
	}
	if _, err := m.Prepare(once(), newClaim("thief", "gpu-00-00")); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("its GPU was given away: %v", err)
	}
	if diff := cmp.Diff(before, w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestRecoverRemovesPartsOfSpecsAndNothingOfOthers(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	w.start()
	for name, text := range map[string]string{
		"gpu.nvidia.com-claim-gone.json.tmp": "{", "gpu.nvidia.com-claim-damaged.json": "{", "gpu.nvidia.com-claim-empty.json": "{}",
		"gpu.nvidia.com_metadata_gone_gpu.json": "{", "nvidia.yaml": "{",
	} {
		if err := os.WriteFile(w.cdiDir()+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.restart(t.Context())
	if diff := cmp.Diff("cdi/gpu.nvidia.com_metadata_gone_gpu.json\ncdi/nvidia.yaml\n", w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
