// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// sharing returns the claims "one" and "two" as shares of a GPU by MPS, and their objects.
func sharing() (*claims, []*resourceapi.ResourceClaim) {
	held := holding("one", "two")
	var objects []*resourceapi.ResourceClaim
	for i := range held.held {
		held.held[i].Devices[0].Terms = share.Terms{Share: &share.Amount{Memory: 1 << 30}, MPS: &share.Client{Daemon: held.held[i].Devices[0].Name}}
		objects = append(objects, agenttest.Allocated(held.held[i].Name, "trainer"))
	}
	return held, objects
}

// tolds returns the events as "object: reason", in order.
func tolds(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	list, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var all []string
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s %s/%s: %s %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Type, e.Reason))
		if e.ReportingController != agenttest.Driver || e.ReportingInstance != "node" || e.Action == "" || len(e.Note) > 1024 {
			t.Errorf("event %+v", e)
		}
	}
	slices.Sort(all)
	return all
}

// disturbancesOf returns the conditions about disturbances that are queued for a claim.
func disturbancesOf(r *Reporter, uid types.UID) (all []metav1.Condition) {
	status := r.status.wanted[uid]
	if status == nil {
		return nil
	}
	return slices.DeleteFunc(status.devices[0].conditions(), func(c metav1.Condition) bool { return c.Type == ConditionReady })
}

func TestWhatKeepsTheProgramsOfASharesFromComputingIsSaid(t *testing.T) {
	ended := testTime.Add(-time.Minute)
	for name, c := range map[string]struct {
		daemon   MPSDaemon
		one, two string
		note     string
	}{
		"a daemon of another GPU": {daemon: MPSDaemon{Name: "gpu-43-00", IsDown: true, Interrupted: ended, Waiting: []types.UID{"uid-trainer"}}},
		"a daemon that ended, and claims before and after": {
			MPSDaemon{Name: "gpu-1b-00", Interrupted: ended}, "ShareInterrupted MPSEnded", "",
			"ended (gpu-1b-00, " + ended.Format(time.RFC3339) + "): the programs of the share that ran then fail at their next CUDA call; start them again",
		},
		"a daemon that cannot be started": {
			MPSDaemon{Name: "gpu-1b-00", IsDown: true}, "ShareUnserved MPSNotRunning", "ShareUnserved MPSNotRunning", "(gpu-1b-00): the programs of the share fail",
		},
		"a pod that waits for another user": {
			MPSDaemon{Name: "gpu-1b-00", Waiting: []types.UID{"uid-trainer"}}, "ShareWaits OtherUser", "", "A program waits for shares of another user of this GPU",
		},
	} {
		t.Run(name, func(t *testing.T) {
			held, objects := sharing()
			objects[0].CreationTimestamp, objects[1].CreationTimestamp = metav1.NewTime(testTime.Add(-time.Hour)), metav1.NewTime(testTime)
			objects[1].Status.ReservedFor[0].UID, objects[1].Status.ReservedFor[0].Name = "uid-other", "other"
			client := fake.NewClientset(objects[0], objects[1])
			r, observed := newTestReporter(client, held)
			for range 2 {
				r.round(t, Findings{Daemons: []MPSDaemon{c.daemon}})
			}
			var events []string
			for uid, want := range map[types.UID]string{"uid-one": c.one, "uid-two": c.two} {
				all := disturbancesOf(r, uid)
				var got string
				for _, d := range all {
					got += d.Type + " " + d.Reason
				}
				if got != want {
					t.Errorf("claim %s has the conditions %q, want %q", uid, got, want)
				}
				if reason, _, _ := strings.Cut(want, " "); reason != "" {
					name := strings.TrimPrefix(string(uid), "uid-")
					pod := map[string]string{"one": "trainer", "two": "other"}[name]
					events = append(events, "Pod team/"+pod+": Warning "+reason, "ResourceClaim team/"+name+": Warning "+reason)
				}
				if reason, _, _ := strings.Cut(want, " "); reason == v1alpha1.ConditionShareInterrupted && !all[0].LastTransitionTime.Time.Equal(ended) {
					t.Errorf("the condition is of %s, want the end of the daemon", all[0].LastTransitionTime)
				}
			}
			slices.Sort(events)
			require.Same(t, "events", events, tolds(t, client))
			list, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for _, e := range list.Items {
				if !strings.Contains(e.Note, c.note) {
					t.Errorf("note %q, want %q", e.Note, c.note)
				}
			}
			if got := observed.All()["disturbed "+strings.Join(codesOf(c.one), "")]; c.one != "" && got != len(events)/2 {
				t.Errorf("%d disturbed shares, want %d: %v", got, len(events)/2, observed.All())
			}
		})
	}
}

// codesOf returns the label of the metric for a condition.
func codesOf(condition string) []string {
	for prefix, code := range map[string]string{"ShareInterrupted": "mps-interrupted", "ShareUnserved": "mps-not-running", "ShareWaits": "mps-other-user"} {
		if strings.HasPrefix(condition, prefix) {
			return []string{code}
		}
	}
	return nil
}

// The condition is the record of the event: a claim that has it gets no other one, and a claim
// whose event cannot be created gets neither.
func TestTheConditionOfADisturbanceIsTheRecordOfItsEvent(t *testing.T) {
	held, objects := sharing()
	down := Findings{Daemons: []MPSDaemon{{Name: "gpu-1b-00", IsDown: true}}}
	client := fake.NewClientset(objects[0], objects[1])
	refused := true
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused, nil, errors.New("overloaded")
	})
	r, _ := newTestReporter(client, held)
	r.round(t, down)
	if got := disturbancesOf(r, "uid-one"); len(got) > 0 {
		t.Errorf("without its event, the claim gets %+v", got)
	}
	refused = false
	r.round(t, down)
	if got := tolds(t, client); len(got) != 3 {
		t.Errorf("events %q", got)
	}
	// The event's time to live ends, and the API server has the condition.
	for _, object := range objects {
		d := r.status.wanted[object.UID].devices[0]
		object.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: agenttest.Driver, Pool: d.pool, Device: d.device, Conditions: d.conditions()}}
	}
	client = fake.NewClientset(objects[0], objects[1])
	r, _ = newTestReporter(client, held)
	r.round(t, down)
	if got := tolds(t, client); len(got) > 0 {
		t.Errorf("the events are repeated: %q", got)
	}
	if got := disturbancesOf(r, "uid-one"); len(got) != 1 {
		t.Errorf("the condition is dropped: %+v", got)
	}
}

func TestAClaimWithoutMPSIsNotDisturbed(t *testing.T) {
	held, objects := sharing()
	for i := range held.held {
		held.held[i].Devices[0].Terms = share.Terms{Share: &share.Amount{Memory: 1 << 30}}
	}
	r, _ := newTestReporter(fake.NewClientset(objects[0], objects[1]), held)
	r.round(t, Findings{Daemons: []MPSDaemon{{Name: "gpu-1b-00", IsDown: true, Interrupted: testTime, Waiting: []types.UID{"uid-trainer"}}}})
	if got := disturbancesOf(r, "uid-one"); len(got) > 0 {
		t.Errorf("conditions %+v", got)
	}
}

// A pod whose program fails is unprepared before the agent knows why.
func TestAClaimThatWasReleasedAfterTheEndOfItsDaemonHasTheEvent(t *testing.T) {
	held, objects := sharing()
	client := fake.NewClientset(objects[0], objects[1])
	r, _ := newTestReporter(client, held)
	for i, object := range objects {
		r.BeginPrepare(object).End(held.held[i].Devices, nil)
	}
	clock := r.Clock.(*testclock.FakeClock)
	r.Released("uid-two")
	clock.Step(time.Second)
	ended := []MPSDaemon{{Name: "gpu-1b-00", Interrupted: clock.Now()}}
	clock.Step(time.Second)
	r.Released("uid-one")
	r.Interrupted(t.Context(), ended)
	require.Same(t, "events", []string{"Pod team/trainer: Warning ShareInterrupted", "ResourceClaim team/one: Warning ShareInterrupted"}, tolds(t, client))
	clock.Step(2 * releasedPatience)
	if left := r.shares.recentlyReleased(clock.Now()); len(left) > 0 {
		t.Errorf("%d released claims are kept", len(left))
	}
}

// A restart of the agent must not cost the event.
func TestAClaimThatAnEarlierAgentPreparedHasTheEventAfterItsRelease(t *testing.T) {
	held, objects := sharing()
	client := fake.NewClientset(objects[0], objects[1])
	r, _ := newTestReporter(client, held)
	r.Clock.(*testclock.FakeClock).Step(time.Second)
	r.Recall(t.Context(), "uid-one")
	r.Released("uid-one")
	must(t, client.ResourceV1().ResourceClaims("team").Delete(t.Context(), "one", metav1.DeleteOptions{}))
	r.Interrupted(t.Context(), []MPSDaemon{{Name: "gpu-1b-00", Interrupted: testTime}})
	if got := tolds(t, client); !slices.Contains(got, "Pod team/trainer: Warning ShareInterrupted") {
		t.Errorf("events %q, want ShareInterrupted on the pod", got)
	}
}
