// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// retried is a fake of Claims whose prepare is refused after each of the steps.
type retried struct {
	claims
	clock *testclock.FakeClock
	steps []time.Duration
	// after, if set, is called after each refusal.
	after func(err error)
	end   error
}

func (r *retried) Prepare(_ context.Context, c *resourceapi.ResourceClaim, onRetry ...func(error)) ([]claim.Device, error) {
	for i, step := range r.steps {
		r.clock.Step(step)
		err := fmt.Errorf("device gpu-1b-00: %w: process %d of the host (cuda) uses it", gpu.ErrInUse, i)
		onRetry[0](err)
		r.after(err)
	}
	if r.end != nil {
		return nil, r.end
	}
	return r.prepare(c)
}

func TestAClaimThatWaitsSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		steps  []time.Duration
		end    error
		during []string // the condition after each refusal
		events []string
		last   string
	}{
		"a short wait": {
			steps: []time.Duration{time.Second, time.Second}, during: []string{"", ""}, last: "True Prepared",
		},
		"three seconds": {
			steps: []time.Duration{time.Second, 2 * time.Second, time.Second}, during: []string{"", "False AlreadyInUse", "False AlreadyInUse"}, last: "True Prepared",
			events: []string{"Pod team/trainer: Warning PrepareRetried", "ResourceClaim team/one: Warning PrepareRetried"},
		},
		"for ever": {
			steps: []time.Duration{4 * time.Second}, during: []string{"False AlreadyInUse"}, end: errors.New("the disk is full"), last: "False PrepareFailed",
			events: []string{"Pod team/trainer: Warning PrepareRetried", "ResourceClaim team/one: Warning PrepareRetried"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			held, objects := sharing()
			object := objects[0]
			// It was prepared before: the kubelet has restarted.
			object.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
				Driver: testDriver, Pool: "node", Device: "gpu-1b-00",
				Conditions: []metav1.Condition{{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonPrepared, Message: "the device is prepared"}},
			}}
			client := fake.NewClientset(object)
			p := newTestPlugin(client, held)
			condition := func() string {
				status := p.status.wanted[object.UID]
				if status == nil {
					return ""
				}
				if status.createEvents != nil {
					if err := status.createEvents(t.Context()); err != nil {
						t.Error(err)
					}
				}
				return fmt.Sprint(status.devices[0].ready, " ", status.devices[0].reason)
			}
			var during []string
			r := &retried{clock: p.Clock.(*testclock.FakeClock), steps: c.steps, end: c.end}
			r.after = func(err error) {
				said := condition()
				during = append(during, said)
				if said != "" && p.status.wanted[object.UID].devices[0].message != err.Error() {
					t.Errorf("the condition is older than %q", err)
				}
			}
			r.prepare = func(*resourceapi.ResourceClaim) ([]claim.Device, error) { return held.held[0].Devices, nil }
			p.Claims = r
			p.prepare(t.Context(), object)
			if diff := cmp.Diff(c.during, during); diff != "" {
				t.Errorf("while it waits (-want +got):\n%s", diff)
			}
			if got := condition(); got != c.last && (got != "" || c.events != nil) {
				t.Errorf("at the end: %q, want %q", got, c.last)
			}
			if diff := cmp.Diff(c.events, tolds(t, client)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestANoteFitsIntoAnEvent(t *testing.T) {
	if got := noteOf(strings.Repeat("é", 600)); len(got) > 1024 || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
