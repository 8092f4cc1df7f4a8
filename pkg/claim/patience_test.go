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

// intime is what a call may take: the kubelet gives it 45 seconds, by a clock
// that it starts before the call arrives.
const intime = 43 * time.Second

// deafMPS is a supervisor whose daemons do not answer when they are started.
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
	// limit of a call whose context ends later.
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

// slowTurns takes its time to change a time slice back.
type slowTurns struct {
	*turns
	needs time.Duration
}

func (s slowTurns) SetTimeSlice(ctx context.Context, a gpu.PCIAddress, slice gpu.TimeSlice) error {
	if slice == gpu.TimeSliceDefault {
		select {
		case <-time.After(s.needs):
		case <-ctx.Done():
			return fmt.Errorf("set time slice: %w", gpu.ErrTimeout)
		}
	}
	return s.turns.SetTimeSlice(ctx, a, slice)
}

// prepareAll prepares the claims at the same time, and gives their errors and
// how long all of them took.
func prepareAll(ctx context.Context, m *claim.Manager, claims ...*resourceapi.ResourceClaim) ([]error, time.Duration) {
	start, errs := time.Now(), make([]error, len(claims))
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() { _, errs[i] = m.Prepare(ctx, c) })
	}
	all.Wait()
	return errs, time.Since(start)
}

// The claims of a GPU wait for each other, and the last try of each is cut
// short by its own time.
func TestWhyADaemonDoesNotStartIsTold(t *testing.T) {
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

// Nothing is left of a daemon that was never heard of, nor of what was done
// before it.
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
					o.MPS, o.TimeSlicing = hungMPS{w.supervisor, limit}, slowTurns{w.turns, time.Second / 2}
				}
				check(w.start(), w.left, piece{device: "gpu-00-00", memory: "4Gi"}, piece{device: "gpu-01-00-ts", config: interval(gpu.TimeSliceLong)})
				mig.options = func(o *claim.Options) { o.MPS = hungMPS{mig.supervisor, limit} }
				check(mig.start(), mig.left, piece{device: part, memory: "4Gi"})
			})
		})
	}
}

// Whatever else hangs, the kubelet gets the call's own error, and a recovery
// ends what the call had no time for.
func TestACallEndsInTimeThoughUndoingItHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newShareWorld(t, dir, 2)
		w.options = func(o *claim.Options) {
			o.MPS, o.TimeSlicing = hungMPS{w.supervisor, time.Hour}, slowTurns{w.turns, time.Hour}
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
