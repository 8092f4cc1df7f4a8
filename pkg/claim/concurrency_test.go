// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
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

func TestOneSlowGPUDoesNotKeepTheOthersWaiting(t *testing.T) {
	w := newWorld(t, t.TempDir(), 8)
	claims := oneEach(8)
	slow := block(claims[3].UID)
	m := w.start(slow.wrap)

	slowResult := make(chan error, 1)
	go func() { _, err := m.Prepare(t.Context(), claims[3]); slowResult <- err }()
	<-slow.arrived

	var all sync.WaitGroup
	for i, c := range claims {
		if i == 3 {
			continue
		}
		all.Go(func() {
			if _, err := m.Prepare(t.Context(), c); err != nil {
				t.Error(err)
			}
			if err := m.Unprepare(t.Context(), c.UID); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait() // which would never end if they waited for the slow one

	close(slow.resume)
	if err := <-slowResult; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(preparedFiles(claims[3]), w.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestManyClaimsAndProcessesAtOnce(t *testing.T) {
	w := newWorld(t, t.TempDir(), 4)
	processes := []*claim.Manager{w.start(), w.start()}
	var all sync.WaitGroup
	var mu sync.Mutex
	holders := make(map[string]string)
	for i := range 8 {
		// Each GPU is in two claims.
		c := newClaim(fmt.Sprintf("claim-%d", i), fmt.Sprintf("gpu-%02x-00", i%4), fmt.Sprintf("gpu-%02x-00", (i+1)%4))
		m := processes[i%2]
		all.Go(func() {
			for range 5 {
				devices, err := m.Prepare(t.Context(), c)
				if err != nil {
					t.Errorf("%s: %v", c.Name, err)
					return
				}
				mu.Lock()
				for _, d := range devices {
					if other := holders[d.Name.String()]; other != "" {
						t.Errorf("%s and %s both hold %s", other, c.Name, d.Name)
					}
					holders[d.Name.String()] = c.Name
				}
				mu.Unlock()

				mu.Lock()
				for _, d := range devices {
					delete(holders, d.Name.String())
				}
				mu.Unlock()
				if err := m.Unprepare(t.Context(), c.UID); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
	all.Wait()
	if got := w.files(); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// During a rolling update the old agent may still run when the new agent starts on
// the same directory.
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
	if _, err := next.Prepare(once(), newClaim("second", "gpu-00-00")); !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("the same GPU: %v, want %v", err, gpu.ErrTimeout)
	}
	if err := next.Unprepare(once(), c.UID); !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("the same claim: %v, want %v", err, gpu.ErrTimeout)
	}
	if _, err := next.Prepare(once(), newClaim("third", "gpu-01-00")); err != nil {
		t.Errorf("another GPU: %v", err)
	}

	waited := make(chan error, 1)
	go func() { waited <- next.Unprepare(t.Context(), c.UID) }()
	close(slow.resume)
	if err := errors.Join(<-result, <-waited); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("team-a/third Prepared gpu-01-00\n", w.held(next)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

func TestPrepareRetriesTransientErrors(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, 1)
		tries := 0
		w.gpuOf = func(gpu.PCIAddress) error {
			if tries++; tries < 4 {
				return gpu.ErrNotReady
			}
			return nil
		}
		if _, err := w.start().Prepare(t.Context(), newClaim("one", "gpu-00-00")); err != nil {
			t.Error(err)
		}
	})
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
		if _, err := w.start().Prepare(t.Context(), newClaim("one", "gpu-aa-00")); !errors.Is(err, gpu.ErrNotFound) {
			t.Errorf("got %v, want %v", err, gpu.ErrNotFound)
		}
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
		if _, err := m.Prepare(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { _, err := m.Prepare(t.Context(), after); result <- err }()
		synctest.Wait()
		if err := m.Unprepare(once(), before.UID); err != nil {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(preparedFiles(after), w.files()); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

// Two processes prepare and unprepare shares of one GPU concurrently. Each prepared
// share has a daemon whose limits admit it.
func TestManySharesOfOneGPUAtOnce(t *testing.T) {
	w := newShareWorld(t, t.TempDir(), 1)
	processes := []*claim.Manager{w.start(), w.start()}
	var all sync.WaitGroup
	for i := range 16 {
		c := pieces(fmt.Sprintf("claim-%d", i), piece{device: "gpu-00-00", memory: fmt.Sprintf("%dGi", 1+i%5)})
		m := processes[i%2]
		all.Go(func() {
			for range 5 {
				devices, err := m.Prepare(t.Context(), c)
				if err != nil {
					t.Errorf("%s: %v", c.Name, err)
					return
				}
				running, err := w.supervisor.MPSDaemons(t.Context())
				if err != nil || len(running) != 1 || running[0].Daemon.MemoryLimits[0] < devices[0].Terms.MPS.MemoryLimit || running[0].Daemon.ThreadPercentage < devices[0].Terms.MPS.ThreadPercentage {
					t.Errorf("%s has %+v, and the daemons are %+v, %v", c.Name, devices[0].Terms, running, err)
				}
				if err := m.Unprepare(t.Context(), c.UID); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
	all.Wait()
	if got := w.left(processes[0]); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}
