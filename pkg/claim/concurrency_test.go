// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	mpssupervisor "github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// blockingCDI blocks in Write for one claim until resume is closed.
type blockingCDI struct {
	ports.CDI
	blocked types.UID
	arrived chan struct{} // closed when Write is called
	resume  chan struct{}
}

func block(blocked types.UID) *blockingCDI {
	return &blockingCDI{blocked: blocked, arrived: make(chan struct{}), resume: make(chan struct{})}
}

func (b *blockingCDI) wrap(inner ports.CDI) ports.CDI { b.CDI = inner; return b }

func (b *blockingCDI) Write(ctx context.Context, uid types.UID, owner types.NamespacedName, injections []gpu.Injection) ([]string, error) {
	if uid == b.blocked {
		close(b.arrived)
		<-b.resume
	}
	return b.CDI.Write(ctx, uid, owner, injections)
}

// oneEach returns n claims, each for a different GPU.
func oneEach(n int) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for i := range n {
		claims = append(claims, newClaim(fmt.Sprintf("one-%d", i), fmt.Sprintf("gpu-%02x-00", i)))
	}
	return claims
}

// concurrently prepares and unprepares the claims several times at the same time, in two
// processes. It calls check while a claim is prepared, and returns one of the processes.
func (w *world) concurrently(t *testing.T, claims []*resourceapi.ResourceClaim, check func(*resourceapi.ResourceClaim, []claim.Device)) *claim.Manager {
	t.Helper()
	processes := []*claim.Manager{w.start(), w.start()}
	var all sync.WaitGroup
	for i, c := range claims {
		m := processes[i%2]
		all.Go(func() {
			for range 5 {
				devices, err := m.Prepare(t.Context(), c)
				if err != nil {
					t.Errorf("%s: %v", c.Name, err)
					return
				}
				check(c, devices)
				if err := m.Unprepare(t.Context(), c.UID); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
	all.Wait()
	return processes[0]
}

func TestManyClaimsAndProcessesAtOnce(t *testing.T) {
	w := newWorld(t, t.TempDir(), 4)
	var claims []*resourceapi.ResourceClaim
	for i := range 8 {
		// Each GPU is in two claims.
		claims = append(claims, newClaim(fmt.Sprintf("claim-%d", i), fmt.Sprintf("gpu-%02x-00", i%4), fmt.Sprintf("gpu-%02x-00", (i+1)%4)))
	}
	var mu sync.Mutex
	holders := make(map[string]string)
	w.concurrently(t, claims, func(c *resourceapi.ResourceClaim, devices []claim.Device) {
		hold := func(holder string) {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range devices {
				if other := holders[d.Name.String()]; other != "" && other != c.Name {
					t.Errorf("%s and %s both hold %s", other, c.Name, d.Name)
				}
				holders[d.Name.String()] = holder
			}
		}
		hold(c.Name)
		hold("")
	})
	wantNothing(t, w.files())
}

// Each prepared share has a daemon whose limits admit it.
func TestManySharesOfOneGPUAtOnce(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	var claims []*resourceapi.ResourceClaim
	for i := range 16 {
		claims = append(claims, pieces(fmt.Sprintf("claim-%d", i), piece{device: "gpu-00-00", memory: fmt.Sprintf("%dGi", 1+i%5)}))
	}
	m := w.concurrently(t, claims, func(c *resourceapi.ResourceClaim, devices []claim.Device) {
		running, err := w.supervisor.MPSDaemons(t.Context())
		if err != nil || len(running) != 1 || running[0].Daemon.MemoryLimits[0] < devices[0].Terms.MPS.MemoryLimit || running[0].Daemon.ThreadPercentage < devices[0].Terms.MPS.ThreadPercentage {
			t.Errorf("%s has %+v, and the daemons are %+v, %v", c.Name, devices[0].Terms, running, err)
		}
	})
	wantNothing(t, w.left(m))
}

func TestManyPartitionsAtOnce(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	var claims []*resourceapi.ResourceClaim
	index := map[string]int{}
	for i, g := range []string{"1b", "43", "52", "61", "9d", "c3", "d1", "df"} {
		prefix := "gpu-" + g + "-00-mig-"
		for _, c := range []*resourceapi.ResourceClaim{
			newClaim(g+"-0", prefix+"1g-10gb-0", prefix+"1g-10gb-1"), newClaim(g+"-1", prefix+"2g-20gb-2"), newClaim(g+"-2", prefix+"3g-40gb-4"),
		} {
			index[c.Name] = i
			claims = append(claims, c)
		}
	}
	m := w.concurrently(t, claims, func(c *resourceapi.ResourceClaim, devices []claim.Device) {
		present := w.uuids(index[c.Name])
		for _, d := range devices {
			if !slices.Contains(present, d.UUID) {
				t.Errorf("%s: %s is %s, which is not among %v", c.Name, d.Name, d.UUID, present)
			}
		}
	})
	wantNothing(t, w.left(m))
}

// During a rolling update the old agent may still run when the new agent starts.
// Both use the same directory.
func TestTwoProcessesExcludeEachOther(t *testing.T) {
	w := newWorld(t, t.TempDir(), 2)
	c := newClaim("first", "gpu-00-00")
	slow := block(c.UID)
	old, next := w.start(slow.wrap), w.start()

	result := make(chan error, 1)
	go func() { _, err := old.Prepare(t.Context(), c); result <- err }()
	<-slow.arrived

	report, err := next.Recover(t.Context())
	if diff := cmp.Diff(claim.Report{Busy: []types.UID{c.UID}}, report); diff != "" || err != nil {
		t.Errorf("recovery undid what the other process is doing: %v (-want +got):\n%s", err, diff)
	}
	require.Error(t, "the same GPU", errOf(next.Prepare(once(), newClaim("second", "gpu-00-00"))), gpu.ErrTimeout)
	require.Error(t, "the same claim", next.Unprepare(once(), c.UID), gpu.ErrTimeout)
	if _, err := next.Prepare(once(), newClaim("third", "gpu-01-00")); err != nil {
		t.Errorf("another GPU: %v", err)
	}

	waited := make(chan error, 1)
	go func() { waited <- next.Unprepare(t.Context(), c.UID) }()
	close(slow.resume)
	if err := errors.Join(<-result, <-waited); err != nil {
		t.Error(err)
	}
	require.Same(t, "held", "team-a/third Prepared gpu-01-00\n", w.held(next))
}

func TestPrepareReportsTheCauseBeforeTheKubeletsDeadline(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const kubelet = 45 * time.Second
		w := newWorld(t, dir, 1)
		w.gpuOf = func(gpu.PCIAddress) error { return gpu.ErrNotReady }
		ctx, cancel := context.WithTimeout(t.Context(), kubelet)
		defer cancel()
		start := time.Now()
		_, err := w.start().Prepare(ctx, newClaim("one", "gpu-00-00"))
		if !errors.Is(err, gpu.ErrNotReady) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the cause: %v", err, gpu.ErrNotReady)
		}
		if took := time.Since(start); took < 30*time.Second || took > kubelet-2*time.Second {
			t.Errorf("answered after %v, want it late and in time for the kubelet's %v", took, kubelet)
		}
	})
}

func TestPrepareReportsPermanentErrorsAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, 1)
		start := time.Now()
		require.Error(t, "error", errOf(w.start().Prepare(t.Context(), newClaim("one", "gpu-aa-00"))), gpu.ErrNotFound)
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v for a GPU that does not exist", took)
		}
	})
}

// After a forced deletion, a GPU's next pod may start before the old pod has ended.
// The waiting claim must not hold a lock that unpreparing the old claim needs.
func TestAClaimWaitsForThePreviousClaim(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, 1)
		m := w.start()
		before, after := newClaim("before", "gpu-00-00"), newClaim("after", "gpu-00-00")
		must(t, errOf(m.Prepare(t.Context(), before)))
		result := make(chan error, 1)
		go func() { _, err := m.Prepare(t.Context(), after); result <- err }()
		synctest.Wait()
		if err := m.Unprepare(once(), before.UID); err != nil {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		require.Same(t, "files", preparedFiles(after), w.files())
	})
}

// stuckMPS is a supervisor that cannot start the daemon of one name.
type stuckMPS struct {
	ports.MPS
	daemon  string
	arrived chan struct{} // closed when the daemon is to be started
	giveUp  chan struct{}
}

func (s stuckMPS) EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error) {
	if d.Name == s.daemon {
		close(s.arrived)
		<-s.giveUp
		return gpu.MPSDirs{}, fmt.Errorf("daemon %s: %w: it does not answer", d.Name, gpu.ErrTimeout)
	}
	return s.MPS.EnsureMPS(ctx, d)
}

// The daemon of one tenant's MIG device does not start for a long time. Meanwhile
// claims for other MIG devices of the GPU are prepared and unprepared, by the same
// process and by another.
func TestADaemonThatDoesNotStartDoesNotBlockOtherDevicesOfItsGPU(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100").withSharing()
	stuck := stuckMPS{daemon: part, arrived: make(chan struct{}), giveUp: make(chan struct{})}
	w.options = func(o *claim.Options) { stuck.MPS = o.MPS; o.MPS = stuck }
	m := w.start()
	w.options = nil
	other := w.start()

	unlucky := pieces("unlucky", piece{device: part, memory: "2Gi"})
	result := make(chan error, 1)
	go func() { _, err := m.Prepare(once(), unlucky); result <- err }()
	<-stuck.arrived

	for name, m := range map[string]*claim.Manager{"same process": m, "another process": other} {
		share, whole := pieces("share", piece{device: h100 + "-mig-3g-40gb-4", memory: "8Gi"}), newClaim("whole", h100+"-mig-1g-10gb-0")
		if _, err := m.Prepare(once(), share); err != nil {
			t.Errorf("%s: a share of another MIG device: %v", name, err)
		}
		if _, err := m.Prepare(once(), whole); err != nil {
			t.Errorf("%s: another MIG device: %v", name, err)
		}
		if _, err := m.Prepare(once(), newClaim("thief", h100)); !errors.Is(err, gpu.ErrInUse) {
			t.Errorf("%s: the GPU as a whole: %v, want %v", name, err, gpu.ErrInUse)
		}
		if _, err := m.Prepare(once(), pieces("next", piece{device: part, memory: "2Gi"})); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("%s: the same MIG device: %v, want %v", name, err, gpu.ErrTimeout)
		}
		if _, err := m.Recover(t.Context()); err != nil {
			t.Errorf("%s: recovery: %v", name, err)
		}
		must(t, m.Unprepare(once(), share.UID))
		must(t, m.Unprepare(once(), whole.UID))
		require.Same(t, fmt.Sprintf("%s: cuts", name), "0 on: 1g.10gb@2\n", w.cuts())
	}

	close(stuck.giveUp)
	require.Error(t, "error", <-result, gpu.ErrTimeout)
	wantNothing(t, w.left(other))
}

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
		return gpu.MPSDirs{}, fmt.Errorf("%w: %w", gpu.ErrTimeout, ctx.Err())
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

// The claims of a GPU wait for each other. A timeout cuts short the last attempt of
// each.
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
				wantNothing(t, w.left(m))
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
					wantNothing(t, left(m))
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

// If undoing hangs too, the call still returns its own error to the kubelet in time.
// A later recovery finishes the undo.
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
		wantNothing(t, w.left(m))
	})
}
