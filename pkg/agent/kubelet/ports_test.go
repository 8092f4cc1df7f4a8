// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// told is a [Ledger], [Hardware] and [Accounts] that records the
// calls of the plugin, which must not overlap.
type told struct {
	events            []string
	needed, contested []types.UID
	foreign           []claim.ForeignProcess
	checked           []kind.Name
	refused           map[types.UID]bool
}

func (t *told) tell(event string, of ...any) {
	t.events = append(t.events, strings.TrimSpace(fmt.Sprintln(append([]any{event}, of...)...)))
}

func (t *told) Changed() { t.tell("changed") }

func (t *told) SetRefused(uid types.UID, refused bool) {
	t.tell("refused", uid, refused)
	t.refused[uid] = refused
}

func (t *told) IsRefused(uid types.UID) bool { return t.refused[uid] }

func (t *told) SetContested(needed, unneeded []types.UID, _ []claim.ForeignProcess) {
	t.needed, t.contested = needed, unneeded
}

func (t *told) SetForeignProcesses(found []claim.ForeignProcess, checked []kind.Name) {
	t.foreign, t.checked = found, checked
}

func (t *told) RequestScan() { t.tell("scan") }

func (t *told) PrepareFailed(err error) { t.tell("failed", err) }

func (t *told) Seen(object *resourceapi.ResourceClaim) { t.tell("seen", object.UID) }

func (t *told) Held(object *resourceapi.ResourceClaim, devices []claim.Device) {
	t.tell("held", object.UID, len(devices))
}

func (t *told) Released(uid types.UID) { t.tell("released", uid) }

func (t *told) PodsOf(context.Context, claim.Ref) map[types.UID]string { return nil }

// untold records nothing, for calls that overlap.
type untold struct{}

func (untold) Changed() {}

func (untold) SetRefused(types.UID, bool) {}

func (untold) IsRefused(types.UID) bool { return false }

func (untold) SetContested(_, _ []types.UID, _ []claim.ForeignProcess) {}

func (untold) SetForeignProcesses([]claim.ForeignProcess, []kind.Name) {}

func (untold) RequestScan() {}

func (untold) PrepareFailed(error) {}

func (untold) Seen(*resourceapi.ResourceClaim) {}

func (untold) Held(*resourceapi.ResourceClaim, []claim.Device) {}

func (untold) Released(types.UID) {}

func (untold) PodsOf(context.Context, claim.Ref) map[types.UID]string { return nil }

// recovering is a fake of Claims whose recovery sweeps leftovers.
type recovering struct{ *claims }

func (recovering) Recover(context.Context) (claim.Report, error) {
	return claim.Report{Swept: map[string][]string{"CreatePartition": {"gpu-1b-00"}}}, nil
}

// The node publishes what claims hold, meters it, and scans hardware that may have changed.
func TestTheNodeLearnsWhatBecomesOfClaims(t *testing.T) {
	object := allocated("one")
	client := fake.NewClientset(testNode(), object)
	c := holding("one")
	c.prepare = func(*resourceapi.ResourceClaim) ([]claim.Device, error) { return []claim.Device{statusDevice()}, nil }
	p := newTestPlugin(client, c)
	heard := hear(p)
	fails := &claims{prepare: func(*resourceapi.ResourceClaim) ([]claim.Device, error) { return nil, gpu.ErrLost }}
	prepare := func() { _, _ = p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{object}) }
	unprepare := func() {
		_, _ = p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: object.UID}})
	}
	for name, tc := range map[string]struct {
		claims Claims
		do     func()
		want   []string
	}{
		"prepared":                             {c, prepare, []string{"seen uid-one", "refused uid-one false", "held uid-one 1", "changed"}},
		"a prepare that fails":                 {fails, prepare, []string{"seen uid-one", "failed GPU lost", "changed"}},
		"unprepared":                           {c, unprepare, []string{"refused uid-one false", "changed", "released uid-one"}},
		"an unprepare that fails":              {stuck{c, errors.New("bad")}, unprepare, []string{"refused uid-one false", "changed"}},
		"an unprepare that its processes deny": {stuck{c, gpu.ErrInUse}, unprepare, []string{"refused uid-one true", "changed"}},
		"a repair":                             {c, func() { p.repair(t.Context()) }, []string{"changed"}},
		"a repair that removes leftovers":      {recovering{c}, func() { p.repair(t.Context()) }, []string{"changed", "scan"}},
		"a round in which the claim is needed": {c, func() { p.reconcile(t.Context()) }, []string{"seen uid-one"}},
		"a round that releases an ended claim": {c, func() {
			if err := client.ResourceV1().ResourceClaims("team").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for range massConfirmations {
				p.reconcile(t.Context())
			}
			if _, err := client.ResourceV1().ResourceClaims("team").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, []string{"changed", "released uid-one"}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Claims, heard.events = tc.claims, nil
			tc.do()
			if diff := cmp.Diff(tc.want, heard.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// hear records the events of the plugin from now on.
func hear(p *Plugin) *told {
	t := &told{refused: map[types.UID]bool{}}
	p.Ledger, p.Foreign, p.Hardware, p.Accounts = t, t, t, t
	return t
}
