// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

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
				Driver: agenttest.Driver, Pool: "node", Device: "gpu-1b-00",
				Conditions: []metav1.Condition{{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonPrepared, Message: "the device is prepared"}},
			}}
			client := fake.NewClientset(object)
			r, _ := newTestReporter(client, held)
			condition := func() string {
				status := r.status.wanted[object.UID]
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
			call := r.BeginPrepare(object)
			for i, step := range c.steps {
				r.Clock.(*testclock.FakeClock).Step(step)
				err := fmt.Errorf("device gpu-1b-00: %w: process %d of the host (cuda) uses it", gpu.ErrInUse, i)
				call.Retry(err)
				said := condition()
				during = append(during, said)
				if said != "" && r.status.wanted[object.UID].devices[0].message != err.Error() {
					t.Errorf("the condition is older than %q", err)
				}
			}
			call.End(held.held[0].Devices, c.end)
			require.Same(t, "while it waits", c.during, during)
			if got := condition(); got != c.last && (got != "" || c.events != nil) {
				t.Errorf("at the end: %q, want %q", got, c.last)
			}
			require.Same(t, "events", c.events, tolds(t, client))
		})
	}
}

func TestAClaimThatCannotBeReleasedSaysWhy(t *testing.T) {
	held, objects := sharing()
	one := objects[0]
	client := fake.NewClientset(one)
	r, _ := newTestReporter(client, held)
	for _, uid := range []types.UID{"uid-of-an-earlier-claim", one.UID} {
		object := nameOf(one)
		object.UID = uid
		r.UnprepareRefused(t.Context(), object, fmt.Errorf("destroy 1g.10gb@2: %w: it is open in process 17", gpu.ErrInUse))
	}
	status := r.status.wanted[one.UID]
	if status == nil || len(r.status.wanted) != 1 {
		t.Fatalf("statuses %v", r.status.wanted)
	}
	if d := status.devices[0]; d.ready != metav1.ConditionFalse || d.reason != "UnprepareRetried" || !strings.HasSuffix(d.message, "process 17") {
		t.Errorf("the condition is %+v", d)
	}
	must(t, status.createEvents(t.Context()))
	want := []string{"Pod team/trainer: Warning UnprepareRetried", "ResourceClaim team/one: Warning UnprepareRetried"}
	require.Same(t, "events", want, tolds(t, client))
}

func TestANoteFitsIntoAnEvent(t *testing.T) {
	if got := noteOf(strings.Repeat("é", 600)); len(got) > 1024 || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
