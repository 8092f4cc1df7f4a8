// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

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

func TestAnUndoThatFailsIsFinishedLater(t *testing.T) {
	c := newClaim("one", "gpu-00-00")
	for name, finish := range map[string]func(*world, *claim.Manager) error{
		"by asking again": func(_ *world, m *claim.Manager) error { return m.Unprepare(t.Context(), c.UID) },
		"by recovery":     func(_ *world, m *claim.Manager) error { _, err := m.Recover(t.Context()); return err },
		"by another process": func(w *world, _ *claim.Manager) error {
			w.restart(t.Context())
			return nil
		},
	} {
		for _, phase := range []claim.Phase{claim.Preparing, claim.Unpreparing} {
			t.Run(string(phase)+" "+name, func(t *testing.T) {
				w := newWorld(t, t.TempDir(), 1)
				cdi := &brokenCDI{}
				m := w.start(cdi.wrap)
				var err error
				if phase == claim.Unpreparing {
					if _, err := m.Prepare(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					cdi.broken = true
					err = m.Unprepare(t.Context(), c.UID)
				} else {
					cdi.broken = true
					_, err = m.Prepare(t.Context(), c)
				}
				if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "undo WriteCDI") {
					t.Errorf("got %v, want the failed undo", err)
				}
				if diff := cmp.Diff(fmt.Sprintf("team-a/one %s gpu-00-00\n", phase), w.held(m)); diff != "" {
					t.Errorf("held (-want +got):\n%s", diff)
				}
				if _, err := m.Prepare(once(), newClaim("thief", "gpu-00-00")); !errors.Is(err, gpu.ErrInUse) {
					t.Errorf("a GPU in an unknown state was given away: %v", err)
				}
				cdi.broken = false
				if err := finish(w, m); err != nil {
					t.Fatal(err)
				}
				if got := w.files(); got != "" {
					t.Errorf("left behind:\n%s", got)
				}
			})
		}
	}
}

// A claim that cannot be recovered does not block the recovery of others.
func TestRecoveryContinuesAfterAFailure(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	for _, c := range oneEach(2) {
		if _, err := w.start().Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.gpuOf = func(a gpu.PCIAddress) error {
		if a.Bus == 0 {
			return gpu.ErrLost
		}
		return nil
	}
	report, err := w.start().Recover(t.Context())
	if !errors.Is(err, gpu.ErrLost) || !strings.Contains(err.Error(), "recover claim uid-one-0") {
		t.Errorf("got %v, want the lost GPU's claim named", err)
	}
	if diff := cmp.Diff(claim.Report{Verified: []types.UID{"uid-one-1"}}, report); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	// A claim that cannot be verified is not undone, because its containers may run.
	if diff := cmp.Diff(preparedFiles(oneEach(2)...), w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A canceled call still undoes the steps that it has begun.
func TestUndoContinuesAfterTheCallIsCanceled(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	w.faults = &faults{full: 6, err: syscall.ENOSPC}
	ctx, cancel := context.WithCancel(t.Context())
	m := w.start(func(inner ports.CDI) ports.CDI { return hangUp{inner, cancel} })
	if _, err := m.Prepare(ctx, newClaim("one", "gpu-00-00")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want %v", err, syscall.ENOSPC)
	}
	if got := w.files(); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
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
	if _, err := m.Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cdi.broken = true
	if err := m.Unprepare(t.Context(), c.UID); err == nil {
		t.Fatal("no error")
	}
	want := []string{"WriteCDI undo=false <nil>", "WriteCDI undo=true directory is read-only"}
	if diff := cmp.Diff(want, seen.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
