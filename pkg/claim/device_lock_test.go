// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

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
		if diff := cmp.Diff("0 on: 1g.10gb@2\n", w.cuts()); diff != "" {
			t.Errorf("%s: cuts (-want +got):\n%s", name, diff)
		}
	}

	close(stuck.giveUp)
	if err := <-result; !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("got %v, want the daemon's %v", err, gpu.ErrTimeout)
	}
	if got := w.left(other); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}
