// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
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
	works := p.claims
	p.claims = stuck{&claims{}, errors.New("the GPU is lost")}
	if err := unprepare(); err == nil {
		t.Fatal("the claim counts as unprepared")
	}
	if got := observations(p.observer)["queue"]; got != 1 {
		t.Errorf("%v statuses are to be written, want the one of the claim, which holds its device", got)
	}
	p.claims = works
	if err := unprepare(); err != nil {
		t.Fatal(err)
	}
	if got := observations(p.observer)["queue"]; got != 0 {
		t.Errorf("%v statuses are to be written, want none: the claim is unprepared", got)
	}
}
