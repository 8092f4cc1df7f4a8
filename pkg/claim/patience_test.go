// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	mpssupervisor "github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
)

// intime is the time that a call may take. The kubelet's timeout of 45 seconds starts
// before the call arrives.
const intime = 43 * time.Second

// deafMPS is a supervisor whose daemons do not answer after they start.
type deafMPS struct{ *supervisor }

const deaf = "nvidia-cuda-mps-control does not answer; the last it said: no CUDA-capable device"

func (d deafMPS) EnsureMPS(ctx context.Context, _ gpu.MPSDaemon) (gpu.MPSDirs, error) {
	select {
	case <-time.After(mpssupervisor.DefaultStartTimeout):
		return gpu.MPSDirs{}, fmt.Errorf("%w: %s", gpu.ErrTimeout, deaf)
	case <-ctx.Done():
		return gpu.MPSDirs{}, errors.New("stream terminated by RST_STREAM with error code: CANCEL")
	}
}

// hungMPS is a supervisor that does not answer at all.
type hungMPS struct {
	*supervisor
	// limit is the timeout of a call whose context ends later.
	limit time.Duration
}

const hung = "gpu-mps-supervisor has not answered in time on /run/gpu-mps-supervisor/supervisor.sock"

func (h hungMPS) hang(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("%w: %s", gpu.ErrTimeout, hung)
}

func (h hungMPS) EnsureMPS(ctx context.Context, _ gpu.MPSDaemon) (gpu.MPSDirs, error) {
	return gpu.MPSDirs{}, h.hang(ctx)
}

func (h hungMPS) StopMPS(ctx context.Context, _ string) error { return h.hang(ctx) }

// slowTimeSlices restores a time slice slowly.
type slowTimeSlices struct {
	*timeSlices
	needs time.Duration
}

func (s slowTimeSlices) SetTimeSlice(ctx context.Context, a gpu.PCIAddress, slice gpu.TimeSlice) error {
	if slice == gpu.TimeSliceDefault {
		select {
		case <-time.After(s.needs):
		case <-ctx.Done():
			return fmt.Errorf("set time slice: %w", gpu.ErrTimeout)
		}
	}
	return s.timeSlices.SetTimeSlice(ctx, a, slice)
}

// prepareAll prepares the claims concurrently, and returns their errors and the total
// time.
func prepareAll(ctx context.Context, m *claim.Manager, claims ...*resourceapi.ResourceClaim) ([]error, time.Duration) {
	start, errs := time.Now(), make([]error, len(claims))
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() { _, errs[i] = m.Prepare(ctx, c) })
	}
	all.Wait()
	return errs, time.Since(start)
}

// The claims of a GPU wait for each other, and a timeout cuts short the last attempt
// of each.
func TestPrepareReportsWhyADaemonDoesNotStart(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("to %d claims", n), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newShareWorld(t, dir, 1)
				w.options = func(o *claim.Options) { o.MPS = deafMPS{w.supervisor} }
				m := w.start()
				var claims []*resourceapi.ResourceClaim
				for i := range n {
					claims = append(claims, pieces(fmt.Sprint(i), piece{device: "gpu-00-00", memory: "10Gi"}))
				}
				errs, took := prepareAll(t.Context(), m, claims...)
				for i, err := range errs {
					if !errors.Is(err, gpu.ErrTimeout) || !strings.HasPrefix(err.Error(), "StartMPS: daemon gpu-00-00: timed out: "+deaf) {
						t.Errorf("claim %d: got %v, want it to begin with why the daemon does not start", i, err)
					}
				}
				if took > intime {
					t.Errorf("took %v, want at most %v", took, intime)
				}
				if got := w.left(m); got != "" {
					t.Errorf("left behind:\n%s", got)
				}
			})
		})
	}
}

// If the supervisor hangs, prepare leaves no daemon and undoes the earlier steps.
func TestASupervisorThatHangs(t *testing.T) {
	for name, limit := range map[string]time.Duration{"within a call": time.Hour, "and is given up on": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mig := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
			synctest.Test(t, func(t *testing.T) {
				check := func(m *claim.Manager, left func(*claim.Manager) string, all ...piece) {
					t.Helper()
					errs, took := prepareAll(t.Context(), m, pieces("c", all...))
					if !errors.Is(errs[0], gpu.ErrTimeout) || !strings.Contains(errs[0].Error(), hung) {
						t.Errorf("got %v, want %q", errs[0], hung)
					}
					if took > intime {
						t.Errorf("took %v, want at most %v", took, intime)
					}
					if got := left(m); got != "" {
						t.Errorf("left behind:\n%s", got)
					}
				}
				w := newShareWorld(t, dir, 2)
				w.options = func(o *claim.Options) {
					o.MPS, o.TimeSlicing.Slices = hungMPS{w.supervisor, limit}, slowTimeSlices{w.timeSlices, time.Second / 2}
				}
				check(w.start(), w.left, piece{device: "gpu-00-00", memory: "4Gi"}, piece{device: "gpu-01-00-ts", config: interval(gpu.TimeSliceLong)})
				mig.options = func(o *claim.Options) { o.MPS = hungMPS{mig.supervisor, limit} }
				check(mig.start(), mig.left, piece{device: part, memory: "4Gi"})
			})
		})
	}
}

// If undoing hangs too, the call still returns its own error to the kubelet in time,
// and a later recovery finishes the undo.
func TestACallEndsInTimeThoughUndoingItHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t, dir, 2)
		w.options = func(o *claim.Options) {
			o.MPS, o.TimeSlicing.Slices = hungMPS{w.supervisor, time.Hour}, slowTimeSlices{w.timeSlices, time.Hour}
		}
		m := w.start()
		errs, took := prepareAll(t.Context(), m, pieces("c", piece{device: "gpu-00-00", memory: "4Gi"}, piece{device: "gpu-01-00-ts", config: interval(gpu.TimeSliceLong)}))
		if got := fmt.Sprint(errs[0]); !strings.Contains(got, hung) {
			t.Errorf("got %s, want %q", got, hung)
		}
		if took > intime {
			t.Errorf("took %v, want at most %v", took, intime)
		}
		w.options = nil
		m, _ = w.restart(t.Context())
		if got := w.left(m); got != "" {
			t.Errorf("left behind:\n%s", got)
		}
	})
}
