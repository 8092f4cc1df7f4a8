// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// countingDisk counts the writes and removals of records.
type countingDisk struct {
	store.Unsynced
	writes   int
	removals []string
}

func (d *countingDisk) WriteNew(path string, data []byte) error {
	d.writes++
	return d.Unsynced.WriteNew(path, data)
}

func (d *countingDisk) Remove(path string) error {
	d.removals = append(d.removals, filepath.Base(path))
	return d.Unsynced.Remove(path)
}

// countingCDI counts the removals of specs.
type countingCDI struct {
	ports.CDI
	removals int
}

func (c *countingCDI) Remove(ctx context.Context, uid types.UID) error {
	c.removals++
	return c.CDI.Remove(ctx, uid)
}

func TestUnprepareRemovesEachFileOnce(t *testing.T) {
	w, disk, specs := newWorld(t, t.TempDir(), 1), &countingDisk{}, &countingCDI{}
	w.disk = disk
	m := w.start(func(inner ports.CDI) ports.CDI { specs.CDI = inner; return specs })
	c := newClaim("only", "gpu-00-00")
	must(t, errOf(m.Prepare(t.Context(), c)))
	must(t, m.Unprepare(t.Context(), c.UID))
	require.Same(t, "removals of records", []string{"uid-only.record", "uid-only.tmp"}, disk.removals)
	if specs.removals != 1 {
		t.Errorf("removed the spec %d times, want once", specs.removals)
	}
	wantNothing(t, w.files())
}

// The record of a claim with a damaged record and a damaged spec is new. The agent may die
// before the claim has a spec again.
func TestUnprepareRemovesASpecThatItsRecordHasNotWritten(t *testing.T) {
	planned, died := 0, true
	for point := 1; died; point++ {
		w := newShareWorld(t, t.TempDir(), 1)
		c := pieces("share", piece{device: "gpu-00-00", memory: "1Gi"})
		w.start()
		must(t, os.WriteFile(w.specPath(c), []byte("{"), 0o600))
		w.faults = &faults{dieAt: point}
		died, _ = dies(func() error { _, err := w.start().Prepare(t.Context(), c); return err })
		w.faults = &faults{}
		if data, err := os.ReadFile(w.recordPath(c)); err == nil && !strings.Contains(string(data), `"WriteCDI","state"`) {
			planned++
		}
		if err := w.start().Unprepare(t.Context(), c.UID); err != nil {
			t.Error(err)
		}
		wantNothing(t, w.files())
	}
	if planned == 0 {
		t.Error("no point is before the spec")
	}
}

func TestAFullDiskDoesNotKeepAClaimFromGoingAway(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("one", "gpu-00-00")
	must(t, errOf(w.start().Prepare(t.Context(), c)))
	w.faults = &faults{full: 1, err: syscall.ENOSPC}
	if err := w.start().Unprepare(t.Context(), c.UID); err != nil {
		t.Error(err)
	}
	wantNothing(t, w.files())
}

func TestRecoverAfterAReboot(t *testing.T) {
	for name, wiped := range map[string]bool{"specs in memory": true, "specs on disk": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), 2)
			a, b := newClaim("a", "gpu-00-00"), newClaim("b", "gpu-01-00")
			must(t, errOf(w.start().Prepare(t.Context(), a)))
			w.faults = &faults{dieAt: 6}
			if died, err := dies(func() error { _, err := w.start().Prepare(t.Context(), b); return err }); !died {
				t.Fatal(err)
			}
			w.boot++
			if wiped {
				must(t, os.RemoveAll(w.cdiDir()))
			}
			_, report := w.restart(t.Context())
			require.Same(t, "report", claim.Report{Forgotten: []types.UID{"uid-a", "uid-b"}}, report)
			wantNothing(t, w.files())
		})
	}
}

// A damaged record must not free its GPU, because its containers may still run.
func TestADamagedRecordDoesNotFreeItsGPU(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	c, fine := newClaim("damaged", "gpu-00-00"), newClaim("fine", "gpu-01-00")
	m := w.start()
	must(t, errOf(m.Prepare(t.Context(), c)))
	must(t, errOf(m.Prepare(t.Context(), fine)))
	must(t, os.WriteFile(w.recordPath(c), []byte("record 1 sha256:00\n{}"), 0o600))
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
	require.Same(t, "report", want, report)
	refused(m, "after recovery")
	require.Same(t, "held", "team-a/damaged Unrecorded gpu-00-00\nteam-a/fine Prepared gpu-01-00\n", w.held(m))
	reason, err := os.ReadFile(w.dir + "/records/quarantine/uid-damaged.record.reason")
	if err != nil || !strings.Contains(string(reason), "corrupt") {
		t.Errorf("reason %q, %v", reason, err)
	}

	t.Run("it is not prepared again", func(t *testing.T) {
		before := w.files()
		_, err := m.Prepare(once(), c)
		require.Error(t, "error", err, gpu.ErrNotFound, "holds [gpu-00-00] until its pods have ended: delete these pods")
		require.Same(t, "files afterwards", before, w.files())
	})
	t.Run("it is prepared again after it is unprepared", func(t *testing.T) {
		must(t, m.Unprepare(t.Context(), c.UID))
		if _, err := m.Prepare(once(), c); err != nil {
			t.Errorf("the GPU is not free: %v", err)
		}
	})
}

// After a downgrade, the agent does not change a claim that a newer release prepared.
// It does not assign the claim's devices to another claim.
func TestARecordOfANewerReleaseIsLeftAlone(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	c := newClaim("newer", "gpu-00-00")
	must(t, errOf(w.start().Prepare(t.Context(), c)))
	must(t, os.WriteFile(w.recordPath(c), []byte("record 2 something else\n"), 0o600))
	before := w.files()
	m := w.start()
	_, prepareErr := m.Prepare(once(), c)
	_, recoverErr := m.Recover(t.Context())
	for op, err := range map[string]error{"prepare": prepareErr, "unprepare": m.Unprepare(t.Context(), c.UID), "recover": recoverErr} {
		if !errors.Is(err, gpu.ErrNotSupported) || !strings.Contains(err.Error(), "written by a newer release") {
			t.Errorf("%s: %v, want it refused", op, err)
		}
	}
	require.Error(t, "its GPU was given away", errOf(m.Prepare(once(), newClaim("thief", "gpu-00-00"))), gpu.ErrInUse)
	require.Same(t, "files", before, w.files())
}

func TestRecoverRemovesPartsOfSpecsAndNothingOfOthers(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	w.start()
	for name, text := range map[string]string{
		"gpu.nvidia.com-claim-gone.json.tmp": "{", "gpu.nvidia.com-claim-damaged.json": "{", "gpu.nvidia.com-claim-empty.json": "{}",
		"gpu.nvidia.com_metadata_gone_gpu.json": "{", "nvidia.yaml": "{",
	} {
		must(t, os.WriteFile(w.cdiDir()+"/"+name, []byte(text), 0o644))
	}
	w.restart(t.Context())
	require.Same(t, "files", "cdi/gpu.nvidia.com_metadata_gone_gpu.json\ncdi/nvidia.yaml\n", w.files())
}

var errBroken = errors.New("directory is read-only")

// brokenCDI fails to change the CDI directory while broken is set.
type brokenCDI struct {
	ports.CDI
	broken bool
}

func (b *brokenCDI) wrap(inner ports.CDI) ports.CDI { b.CDI = inner; return b }

func (b *brokenCDI) Write(ctx context.Context, uid types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error) {
	if b.broken {
		return nil, errBroken
	}
	return b.CDI.Write(ctx, uid, owner, injections)
}

func (b *brokenCDI) Remove(ctx context.Context, uid types.UID) error {
	if b.broken {
		return errBroken
	}
	return b.CDI.Remove(ctx, uid)
}

// A claim that cannot be recovered does not block the recovery of others.
func TestRecoveryContinuesAfterAFailure(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	for _, c := range oneEach(2) {
		must(t, errOf(w.start().Prepare(t.Context(), c)))
	}
	w.gpuOf = func(a gpu.PCIAddress) error {
		if a.Bus == 0 {
			return gpu.ErrLost
		}
		return nil
	}
	report, err := w.start().Recover(t.Context())
	require.Error(t, "error", err, gpu.ErrLost, "recover claim uid-one-0")
	require.Same(t, "report", claim.Report{Verified: []types.UID{"uid-one-1"}}, report)
	// A claim that cannot be verified is not undone, because its containers may run. None starts again: the device
	// node of the GPU may be another one's by now. Its spec is still its witness.
	require.Same(t, "files", preparedFiles(oneEach(2)...), w.files())
	closed := filepath.Join(w.cdiDir(), driver+"-claim-uid-one-0.json")
	text, err := os.ReadFile(closed)
	must(t, err)
	if !strings.Contains(string(text), "/dev/nvidia-unavailable") || strings.Contains(string(text), "/dev/nvidia0") {
		t.Errorf("a container of the claim can start: %s", text)
	}
	m := w.start()
	must(t, os.Remove(w.recordPath(oneEach(2)[0])))
	require.Same(t, "held without the record", "team-a/one-0 Unrecorded gpu-00-00\nteam-a/one-1 Prepared gpu-01-00\n", w.held(m))
}

// A spec is written again when it is of use, and not before: a probe asks for it again and again.
func TestASpecIsLostWhileItsGPUAnswers(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	m := w.start()
	must(t, errOf(m.Prepare(t.Context(), newClaim("c", "gpu-00-00"))))
	lost := func(what string, want ...types.UID) {
		t.Helper()
		got, err := m.LostSpecs(t.Context())
		must(t, err)
		require.Same(t, what, want, got)
	}
	spec := filepath.Join(w.cdiDir(), driver+"-claim-uid-c.json")
	before, err := os.ReadFile(spec)
	must(t, err)
	lost("prepared")
	must(t, os.Remove(spec))
	lost("missing", "uid-c")
	for _, gone := range []error{gpu.ErrLost, gpu.ErrNotFound, gpu.ErrNotReady} {
		w.gpuOf = func(gpu.PCIAddress) error { return gone }
		lost("missing, and the GPU is gone")
		require.Error(t, "recover", errOf(m.Recover(t.Context())), gone)
		lost("closed, and the GPU is gone")
		w.gpuOf = nil
		lost("closed, and the GPU answers", "uid-c")
		must(t, errOf(m.Recover(t.Context())))
		lost("repaired")
		after, err := os.ReadFile(spec)
		must(t, err)
		require.Same(t, "spec", string(before), string(after))
	}
	// A GPU that hangs is where it was.
	w.gpuOf = func(gpu.PCIAddress) error { return gpu.ErrTimeout }
	require.Error(t, "recover", errOf(m.Recover(t.Context())), gpu.ErrTimeout)
	after, err := os.ReadFile(spec)
	must(t, err)
	require.Same(t, "spec while the GPU hangs", string(before), string(after))
}

// A canceled call still undoes the steps that it has begun.
func TestUndoContinuesAfterTheCallIsCanceled(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	w.faults = &faults{full: 6, err: syscall.ENOSPC}
	ctx, cancel := context.WithCancel(t.Context())
	m := w.start(func(inner ports.CDI) ports.CDI { return hangUp{inner, cancel} })
	require.Error(t, "error", errOf(m.Prepare(ctx, newClaim("one", "gpu-00-00"))), syscall.ENOSPC)
	wantNothing(t, w.files())
}

// hangUp cancels the caller's context during a call, and returns an error if its own
// context has ended.
type hangUp struct {
	ports.CDI
	cancel context.CancelFunc
}

func (h hangUp) Write(ctx context.Context, uid types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error) {
	defer h.cancel()
	return h.CDI.Write(ctx, uid, owner, injections)
}

func (h hangUp) Remove(ctx context.Context, uid types.UID) error {
	return errors.Join(ctx.Err(), h.CDI.Remove(ctx, uid))
}

type recorder struct{ lines []string }

func (r *recorder) StepDone(step string, undo bool, _ time.Duration, err error) {
	r.lines = append(r.lines, fmt.Sprintf("%s undo=%t %v", step, undo, err))
}

func TestStepsAreObserved(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	cdi := &brokenCDI{}
	seen := &recorder{}
	w.options = func(o *claim.Options) { o.Observer = seen }
	m := w.start(cdi.wrap)
	c := newClaim("one", "gpu-00-00")
	must(t, errOf(m.Prepare(t.Context(), c)))
	cdi.broken = true
	if err := m.Unprepare(t.Context(), c.UID); err == nil {
		t.Fatal("no error")
	}
	want := []string{"WriteCDI undo=false <nil>", "WriteCDI undo=true directory is read-only"}
	require.Same(t, "steps", want, seen.lines)
}

// keepsSpecs is a CDI directory from which no spec can be removed.
type keepsSpecs struct{ ports.CDI }

func (keepsSpecs) Remove(context.Context, types.UID) error {
	return errors.New("read-only file system")
}

// A spec without a record holds the devices that it names. So the record of another
// boot is removed last: with it, the claim holds nothing.
func TestAClaimOfAnotherBootHoldsNothingWhileItCannotBeForgotten(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	must(t, errOf(w.start().Prepare(once(), newClaim("before", "gpu-00-00"))))
	w.boot++
	m := w.start(func(c ports.CDI) ports.CDI { return keepsSpecs{c} })
	if _, err := m.Recover(t.Context()); err == nil {
		t.Error("recovered, want the error of the CDI folder")
	}
	if _, err := m.Prepare(once(), newClaim("after", "gpu-00-00")); err != nil {
		t.Errorf("the GPU of a claim of another boot: %v, want it free", err)
	}
}
