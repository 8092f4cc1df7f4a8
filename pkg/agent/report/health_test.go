// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// memory is [Records] in memory.
type memory map[string][]byte

func (m memory) Keys() ([]string, error) { return slices.Sorted(maps.Keys(m)), nil }

func (m memory) Read(key string) ([]byte, error) {
	payload, found := m[key]
	if !found {
		return nil, fs.ErrNotExist
	}
	return payload, nil
}

func (m memory) Write(key string, payload []byte) error { m[key] = payload; return nil }

func (m memory) Delete(key string) error { delete(m, key); return nil }

// failing is a node with claims whose GPUs fail.
type failing struct {
	*healthEvents
	claims  *claims
	client  *fake.Clientset
	clock   *testclock.FakeClock
	records memory
	// value is the taint of the GPU 1b-00, and since when it has it.
	value string
	since time.Time
	// unknown is set while the health of no GPU is known.
	unknown bool
}

func newFailing(c *claims, objects ...runtime.Object) *failing {
	f := &failing{claims: c, client: fake.NewClientset(objects...), clock: testclock.NewFakeClock(testTime), records: memory{}}
	f.restart()
	return f
}

// restart replaces the agent by another one.
func (f *failing) restart() {
	f.healthEvents = newHealthEvents(Options{
		DriverName: agenttest.Driver, NodeName: "node", Client: f.client, Claims: f.claims, Clock: f.clock, Records: f.records, Health: f,
	})
}

func (f *failing) CauseAt(address gpu.PCIAddress) (string, time.Time, bool) {
	if address.DeviceName() != "gpu-1b-00" {
		return "", time.Time{}, !f.unknown
	}
	return f.value, f.since, !f.unknown
}

func (f *failing) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

// take returns the events since the last call as "object: type reason", in order, and deletes
// them as their time to live does.
func (f *failing) take(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, e := range f.events(t) {
		all = append(all, fmt.Sprintf("%s %s/%s: %s %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Type, e.Reason))
		if err := f.client.EventsV1().Events(e.Namespace).Delete(t.Context(), e.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(all)
	return all
}

func (f *failing) events(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := f.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return list.Items
}

func (f *failing) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if err := f.round(t.Context()); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	require.Same(t, "events "+when, want, f.take(t))
}

const (
	claimFails, podFails = "ResourceClaim team/one: Warning GPUUnhealthy", "Pod team/trainer: Warning GPUUnhealthy"
	claimWell, podWell   = "ResourceClaim team/one: Normal GPUHealthy", "Pod team/trainer: Normal GPUHealthy"
)

func TestAFaultAndItsEndAreOneEventEach(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
	f.want(t, "while all is well")
	f.unknown = true
	f.want(t, "before the first scan")
	f.unknown, f.value, f.since = false, "xid-79", testTime.Add(-time.Minute)
	f.want(t, "after the fault", podFails, claimFails)
	f.want(t, "in the next round")
	f.restart()
	f.want(t, "after a restart of the agent")
	f.unknown = true
	f.restart()
	f.want(t, "before its first scan")
	f.unknown, f.value, f.since = false, "", time.Time{}
	f.want(t, "after the repair", podWell, claimWell)
	f.want(t, "in the round after")
	if len(f.records) > 0 {
		t.Errorf("records stay: %q", f.records)
	}
	f.value, f.since = "xid-79", testTime.Add(time.Minute)
	f.want(t, "after another fault", podFails, claimFails)
	f.since = testTime.Add(2 * time.Minute)
	f.want(t, "after the same fault again, before a repair", podFails, claimFails)
	f.claims.held = nil
	f.want(t, "after the claim has ended")
	if len(f.records) > 0 {
		t.Errorf("records stay: %q", f.records)
	}
}

func TestAnEventSaysWhatFailsWhatFollowsAndWhatToDo(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
	f.value, f.since = "xid-79", testTime
	must(t, f.round(t.Context()))
	events := f.events(t)
	if len(events) != 2 {
		t.Fatalf("%d events", len(events))
	}
	want := "gpu-1b-00 of node node is unhealthy (xid-79): the GPU has fallen off the bus. " +
		"The programs on the GPU have failed or will fail: their CUDA calls return errors. " +
		"What to do: delete the pod, so that its controller starts it on another GPU; results that are only in the memory of this GPU are lost."
	for _, e := range events {
		if e.Note != want {
			t.Errorf("note %q\nwant %q", e.Note, want)
		}
		if e.ReportingController != agenttest.Driver || e.ReportingInstance != "node" || e.Action == "" || !e.EventTime.Equal(&metav1.MicroTime{Time: testTime}) || e.Regarding.UID == "" || e.Regarding.APIVersion == "" {
			t.Errorf("event %+v", e)
		}
	}
	f.value = ""
	must(t, f.round(t.Context()))
	if note := f.events(t)[0].Note + f.events(t)[1].Note; !strings.Contains(note, "healthy again (it was xid-79)") {
		t.Errorf("notes %q", note)
	}
}

// The API server refuses longer notes and names.
func TestEventsOfEveryCauseFitTheAPI(t *testing.T) {
	f := newFailing(&claims{})
	f.NodeName = strings.Repeat("n", validation.DNS1123SubdomainMaxLength)
	address := gpu.PCIAddress{Domain: 0xffffffff, Bus: 0xff, Device: 0x1f}
	for _, c := range cause.All() {
		note := f.failure(reportedCause{Cause: c.Value}, address).note
		if len(note) > 1024 || strings.Contains(note, "NODE") || strings.Contains(note, "ADDRESS") {
			t.Errorf("%s: %d bytes: %s", c.Code, len(note), note)
		}
	}
	long := corev1.ObjectReference{Kind: "Pod", Name: strings.Repeat("a.", 126) + "a", UID: "uid"}
	for _, on := range []corev1.ObjectReference{long, {Kind: "Pod", Name: "short", UID: "uid"}} {
		if name := (event{device: "gpu-1b-00", occasion: "xid-79"}).name(on); len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("the name %q is invalid", name)
		}
	}
}

func TestOnlyClaimsOnTheGPUHaveEvents(t *testing.T) {
	c := holding("one", "other", "monitor", "rebooted")
	c.held[1].Devices = []claim.Device{{Name: kindtest.Name("gpu-43-00")}}
	c.held[2].Devices = []claim.Device{{Name: kindtest.Name("node-gpus")}}
	c.held[3].Phase = claim.Preparing
	// A claim with two parts of a GPU has one event.
	c.held[0].Devices = []claim.Device{{Name: kindtest.Name("gpu-1b-00-mig-1g-10gb-0")}, {Name: kindtest.Name("gpu-1b-00-mig-1g-10gb-1")}}
	f := newFailing(c, agenttest.Allocated("one", "trainer"), agenttest.Allocated("other", "p"), agenttest.Allocated("monitor", "q"), agenttest.Allocated("rebooted", "r"))
	f.value, f.since = "xid-79", testTime
	f.want(t, "after the fault", podFails, claimFails)
}

func TestASilentGPUHasOneEventForEachCause(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one"))
	f.value = "lost"
	f.want(t, "when it is lost", claimFails)
	f.clock.Step(time.Hour)
	f.restart()
	f.want(t, "after a restart of the agent")
	f.value, f.since = "xid-119", f.clock.Now()
	f.want(t, "when the cause changes", claimFails)
	f.value, f.since = "lost", time.Time{}
	f.want(t, "when it changes back")
	for i := range 2 * maxCauses {
		f.value = fmt.Sprintf("xid-%d", i)
		must(t, f.round(t.Context()))
	}
	if got := len(f.take(t)); got != maxCauses-2 {
		t.Errorf("%d events of a GPU whose cause changes all the time", got)
	}
}

// A restart between the events and the record of them must not repeat them.
func TestAnAgentThatIsKilledRepeatsNoEvent(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
	f.value = "lost"
	must(t, f.round(t.Context()))
	for key, payload := range f.records {
		f.records[key] = []byte(strings.ReplaceAll(string(payload), `,"reported":true`, ""))
	}
	f.clock.Step(time.Minute)
	f.restart()
	f.want(t, "from both agents", podFails, claimFails)
	// A record that cannot be read costs at most one event.
	f.records["uid-one-gpu-1b-00"] = []byte("{")
	f.want(t, "after the record was damaged", podFails, claimFails)
}

func TestEventsAreRetriedWhenTheAPIServerAnswers(t *testing.T) {
	f := newFailing(holding("one", "two"), agenttest.Allocated("one", "trainer"), agenttest.Allocated("two"))
	refusal := errors.New("connection refused")
	tried := 0
	f.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		tried++
		return refusal != nil, nil, refusal
	})
	f.value, f.since = "xid-79", testTime
	if err := f.round(t.Context()); err == nil || tried != 1 {
		t.Errorf("without an API server: %v after %d attempts, want an error after one", err, tried)
	}
	refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no rights"))
	if err := f.round(t.Context()); !apierrors.IsForbidden(err) || tried != 3 {
		t.Errorf("without rights: %v after %d attempts, want one for each claim", err, tried)
	}
	refusal = nil
	f.want(t, "once it answers", podFails, claimFails, "ResourceClaim team/two: Warning GPUUnhealthy")
}

func TestAFaultThatEndsBeforeItsEventHasNone(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
	refuse := true
	f.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refuse, nil, errors.New("connection refused")
	})
	f.value, f.since = "xid-79", testTime
	if err := f.round(t.Context()); err == nil {
		t.Error("no error")
	}
	refuse, f.value = false, ""
	f.want(t, "after the repair")
}

func TestAClaimThatIsReplacedHasNoEvents(t *testing.T) {
	other := agenttest.Allocated("one", "trainer")
	other.UID = "another"
	f := newFailing(holding("one", "gone"), other)
	f.value, f.since = "xid-79", testTime
	f.want(t, "after the fault")
}

func TestTheEventsOfANodeAreLimited(t *testing.T) {
	var names []string
	var objects []runtime.Object
	for i := range 2 * eventsAtOnce {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	objects = append(objects, agenttest.Allocated("many", names...))
	f := newFailing(holding("many"), objects...)
	f.value, f.since = "xid-79", testTime
	if err := f.round(t.Context()); !errors.Is(err, errRateLimit) || len(f.events(t)) != eventsAtOnce {
		t.Errorf("%d events and %v, want %d", len(f.events(t)), err, eventsAtOnce)
	}
	f.clock.Step(time.Minute)
	if err := f.round(t.Context()); !errors.Is(err, errRateLimit) || len(f.events(t)) != eventsAtOnce+eventsPerMinute {
		t.Errorf("%d events and %v a minute later, want %d more", len(f.events(t)), err, eventsPerMinute)
	}
	f.clock.Step(time.Minute)
	if err := f.round(t.Context()); err != nil || len(f.events(t)) != 2*eventsAtOnce+1 {
		t.Errorf("%d events and %v in the end, want all", len(f.events(t)), err)
	}
}

// Some users know of the fault, so all of them learn of its end.
func TestAFaultThatEndsWhileItsEventsAreCreatedHasItsEnd(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
	f.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		event := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		return event.Regarding.Kind == "Pod" && event.Type == corev1.EventTypeWarning, nil, errors.New("connection refused")
	})
	f.value, f.since = "xid-79", testTime
	if err := f.round(t.Context()); err == nil {
		t.Error("no error")
	}
	f.value = ""
	f.want(t, "after the repair", podWell, claimWell, claimFails)
}

// The other agent of a rolling update may end the report, at any moment.
func TestAReportThatGoesAwayWhileItsEventsAreCreated(t *testing.T) {
	for name, lose := range map[string]func(*failing){
		"deleted":        func(f *failing) { clear(f.records) },
		"without causes": func(f *failing) { f.records["uid-one-gpu-1b-00"] = []byte(`{"created":["an event"]}`) },
	} {
		f := newFailing(holding("one"), agenttest.Allocated("one", "trainer"))
		refuse := true
		f.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return refuse && action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event).Regarding.Kind == "Pod", nil, errors.New("connection refused")
		})
		f.value, f.since = "xid-79", testTime
		if err := f.round(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if len(f.records) != 1 {
			t.Fatalf("%d records, want 1", len(f.records))
		}
		lose(f)
		refuse, f.value = false, ""
		f.want(t, name, claimFails)
		if len(f.records) != 0 {
			t.Errorf("%s: records %s are left", name, f.records)
		}
	}
}

// changing is the health of a GPU that fails in a moment.
type changing struct {
	values  chan string // contains the taint
	changed chan struct{}
}

func (c changing) CauseAt(gpu.PCIAddress) (string, time.Time, bool) {
	value := <-c.values
	c.values <- value
	return value, testTime, true
}

func (c changing) Subscribe() (<-chan struct{}, func()) { return c.changed, func() {} }

func TestEventsFollowAChangeOfHealth(t *testing.T) {
	f := newFailing(holding("one"), agenttest.Allocated("one"))
	created := make(chan struct{}, 10)
	f.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		created <- struct{}{}
		return false, nil, nil
	})
	health := changing{make(chan string, 1), make(chan struct{})}
	health.values <- ""
	f.Health = health
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.run(ctx) }()
	<-health.values
	health.values <- "xid-79"
	health.changed <- struct{}{}
	<-created
	cancel()
	<-ended
}

var must = require.NoError
