// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// device waits until the agent knows a device in a state, and repeats the cause
// meanwhile: nothing here knows when the agent has begun to watch.
func (r *running) device(t *testing.T, name string, is func(state.DeviceHealth) bool, cause func() error) {
	t.Helper()
	changed, cancel := r.observers.controller.Subscribe()
	defer cancel()
	giveUp := time.After(time.Minute)
	for {
		var status state.DeviceHealth
		for _, d := range r.observers.controller.Devices() {
			if d.Name.String() == name {
				status = d
			}
		}
		if status.Name != (kind.Name{}) && is(status) {
			return
		}
		if err := cause(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-giveUp:
			t.Fatalf("%s: %+v; state: %s", name, status, r.observers.controller.State())
		}
	}
}

func TestAFaultIsAnEventOfTheClaimAndItsPods(t *testing.T) {
	t.Parallel()
	claim := claimFor("one", "gpu-43-00")
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "trainer", UID: "uid-trainer"}}
	n := newNode(t, claim)
	events, err := n.client.EventsV1().Events(claim.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	want := func(reason string) {
		t.Helper()
		for _, kind := range []string{"ResourceClaim", "Pod"} {
			select {
			case e := <-events.ResultChan():
				if event, ok := e.Object.(*eventsv1.Event); !ok || event.Reason != reason || event.Regarding.Kind != kind || event.ReportingInstance != "node-1" {
					t.Errorf("event %+v, want %s on the %s", e.Object, reason, kind)
				}
			case <-time.After(time.Minute):
				t.Fatalf("no event %s on the %s", reason, kind)
			}
		}
	}
	a := n.start(t)
	a.mustPrepare(t, claim)
	sim := n.sim(t)
	a.device(t, "gpu-43-00", func(d state.DeviceHealth) bool { return d.Cause == "xid-119" }, func() error { return sim.ReportXID(1, 119) })
	want(v1alpha1.ReasonGPUUnhealthy)
	a.device(t, "gpu-43-00", func(d state.DeviceHealth) bool { return strings.Contains(d.Message, "requests a reset") },
		func() error { return sim.SetRecovery(1, nvmlsim.RecoveryGPUReset) })
	n.mustStop(t, a)
	if err := sim.ResetGPU(1); err != nil {
		t.Fatal(err)
	}
	a = n.start(t)
	want(v1alpha1.ReasonGPUHealthy)
	a.unprepare(t, claim)
	n.mustStop(t, a)
	n.wantNothing(t)
}
