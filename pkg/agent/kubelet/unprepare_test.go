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
)

// stuck is a fake of Claims that cannot unprepare a claim.
type stuck struct {
	*claims
	err error
}

func (s stuck) Unprepare(context.Context, types.UID) error { return s.err }

func TestAFailedUnprepareKeepsTheQueuedStatus(t *testing.T) {
	p := newTestPlugin(fake.NewClientset(), &claims{prepare: func(*resourceapi.ResourceClaim) ([]claim.Device, error) {
		return []claim.Device{statusDevice()}, nil
	}})
	one := allocated("one")
	unprepare := func() error {
		results, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: one.UID}})
		if err != nil {
			t.Fatal(err)
		}
		return results[one.UID]
	}
	if _, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{one}); err != nil {
		t.Fatal(err)
	}
	works := p.Claims
	p.Claims = stuck{&claims{}, errors.New("the GPU is lost")}
	if err := unprepare(); err == nil {
		t.Fatal("the claim counts as unprepared")
	}
	if got := observations(p.Observer)["queue"]; got != 1 {
		t.Errorf("%v statuses are to be written, want the one of the claim, which holds its device", got)
	}
	p.Claims = works
	if err := unprepare(); err != nil {
		t.Fatal(err)
	}
	if got := observations(p.Observer)["queue"]; got != 0 {
		t.Errorf("%v statuses are to be written, want none: the claim is unprepared", got)
	}
}

func TestAClaimThatCannotBeReleasedSaysWhy(t *testing.T) {
	held, objects := sharing()
	one := objects[0]
	client := fake.NewClientset(one)
	p := newTestPlugin(client, held)
	hear(p)
	p.Claims = stuck{held, fmt.Errorf("destroy 1g.10gb@2: %w: it is open in process 17", gpu.ErrInUse)}
	for _, uid := range []types.UID{"uid-of-an-earlier-claim", one.UID} {
		object := nameOf(one)
		object.UID = uid
		if _, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{object}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := p.compareHeld(t.Context()); err != nil { // a round does not report it as prepared
		t.Fatal(err)
	}
	status := p.status.wanted[one.UID]
	if status == nil || len(p.status.wanted) != 1 {
		t.Fatalf("statuses %v", p.status.wanted)
	}
	if d := status.devices[0]; d.ready != metav1.ConditionFalse || d.reason != "UnprepareRetried" || !strings.HasSuffix(d.message, "process 17") {
		t.Errorf("the condition is %+v", d)
	}
	if err := status.createEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"Pod team/trainer: Warning UnprepareRetried", "ResourceClaim team/one: Warning UnprepareRetried"}
	if diff := cmp.Diff(want, tolds(t, client)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
