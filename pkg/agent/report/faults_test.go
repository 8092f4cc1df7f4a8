// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// faulting is a node whose programs make faults. A process with the PID n is of the pod "uid-pod-n".
type faulting struct {
	*faultEvents
	claims *claims
	client *fake.Clientset
	// ended are the PIDs of processes of which nothing is known.
	ended  []int
	counts *agenttest.Observed
}

// newFaulting returns a node with claims. Each of them is of a pod: the claim "1" of "pod-1".
func newFaulting(t *testing.T, held ...claim.Claim) *faulting {
	t.Helper()
	f := &faulting{claims: &claims{held: held}, client: fake.NewClientset(), counts: agenttest.NewObserved()}
	f.restart()
	return f
}

func (f *faulting) restart() {
	f.faultEvents = newFaultEvents(Options{
		DriverName: agenttest.Driver, NodeName: "node", Client: f.client, Claims: f.claims, Pods: f, Clock: testclock.NewFakeClock(testTime), Faults: f, Observer: f.counts,
	})
}

func (f *faulting) Follow(context.Context, func(gpu.LoggedXID)) {}

func (f *faulting) PodOf(pid int) types.UID {
	if pid == 0 || slices.Contains(f.ended, pid) {
		return ""
	}
	return types.UID(fmt.Sprintf("uid-pod-%d", pid))
}

func (f *faulting) PodsOf(_ context.Context, ref claim.Ref) map[types.UID]string {
	if strings.HasPrefix(ref.Name, "group") {
		return nil
	}
	return map[types.UID]string{types.UID("uid-pod-" + ref.Name): "pod-" + ref.Name}
}

// log logs an XID of the GPU 1b-00.
func (f *faulting) log(t *testing.T, at time.Duration, xid uint64, pid int) {
	t.Helper()
	f.see(t.Context(), gpu.LoggedXID{At: at, GPU: gpu.PCIAddress{Bus: 0x1b}, Number: xid, PID: pid, Command: "train"})
}

// sent creates the queued events.
func (f *faulting) sent(t *testing.T) []eventsv1.Event {
	t.Helper()
	for len(f.queue) > 0 {
		f.deliver(t.Context(), <-f.queue)
	}
	list, err := f.client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return list.Items
}

// want compares the events since the last call, and deletes them as their time to live does.
func (f *faulting) want(t *testing.T, when string, want ...string) {
	t.Helper()
	var all []string
	for _, e := range f.sent(t) {
		all = append(all, fmt.Sprintf("%s %s/%s: %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Reason))
		if err := f.client.EventsV1().Events(e.Namespace).Delete(t.Context(), e.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(all)
	require.Same(t, "events "+when, want, all)
}

// on returns a prepared claim with a device, in a namespace of its own.
func on(name, device string, terms share.Terms) claim.Claim {
	return claim.Claim{
		Ref:   claim.Ref{Namespace: "team-" + name, Name: name, UID: types.UID("uid-" + name)},
		Phase: claim.Prepared, Devices: []claim.Device{{Name: kindtest.Name(device), Terms: terms}},
	}
}

// shared returns a prepared claim with an MPS share of a device.
func shared(name, device string) claim.Claim {
	return on(name, device, share.Terms{Share: &share.Amount{Memory: 1}, MPS: &share.Client{}})
}

func (f *faulting) wantCounts(t *testing.T, want map[string]int) {
	t.Helper()
	require.Same(t, "counts", want, f.counts.All())
}

// nameless does not know the names of pods, and its API server does not answer.
type nameless struct{ *faulting }

func (nameless) PodsOf(ctx context.Context, _ claim.Ref) map[types.UID]string {
	<-ctx.Done()
	return nil
}

func TestTheNamesOfManyPodsDoNotDelayTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held []claim.Claim
		for i := range 48 {
			c := shared(fmt.Sprint(i), "gpu-1b-00")
			c.Pods = []types.UID{types.UID(fmt.Sprint("uid-pod-", i))}
			held = append(held, c)
		}
		f := newFaulting(t, held...)
		f.Pods = nameless{f}
		start := time.Now()
		f.log(t, 0, 31, 7)
		if waited := time.Since(start); waited > namesPatience {
			t.Errorf("the log waits %s for names", waited)
		}
		if len(f.queue) == 0 {
			t.Error("no event")
		}
	})
}

const second = time.Second

func TestAFaultHasAnEventOnItsPodAndOnThePodsOfItsMPSServer(t *testing.T) {
	f := newFaulting(t, shared("1", "gpu-1b-00"), shared("2", "gpu-1b-00"), shared("3", "gpu-43-00"), on("4", "gpu-df-00", share.Terms{}))
	f.log(t, second, 31, 1)
	own := "XID 31 at 03:04:05 UTC on gpu-1b-00 of node node: the program accessed an address of the GPU's memory that is not mapped; the GPU is well. " +
		"What to do: find the access (compute-sanitizer), correct the program, and start it again."
	other := "A fault of another program on gpu-1b-00 of node node (XID 31 at 03:04:05 UTC) ended the programs of all its MPS shares. " +
		"What to do: start the program again; for faults that stay apart, use a MIG device or a GPU of your own."
	got := map[string]string{}
	for _, e := range f.sent(t) {
		got[e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name+" "+string(e.Regarding.UID)] = e.Type + " " + e.Note
	}
	require.Same(t, "events", map[string]string{"Pod team-1/pod-1 uid-pod-1": "Warning " + own, "Pod team-2/pod-2 uid-pod-2": "Warning " + other}, got)
	f.wantCounts(t, map[string]int{"fault 31 own team-1": 1, "fault 31 other team-2": 1})
}

func TestTheGPUAndItsUseSayWhomAFaultEnds(t *testing.T) {
	const own, ends = ": ProgramFault", ": SharedFault"
	slot := share.Terms{Slots: 1}
	joined := shared("1", "gpu-1b-00")
	joined.Pods = []types.UID{"uid-pod-7"}
	group := shared("group", "gpu-1b-00")
	group.Pods = []types.UID{"uid-pod-8", "uid-pod-9"}
	unknown := shared("group", "gpu-1b-00") // its pods could not be read
	preparing := shared("2", "gpu-1b-00")
	preparing.Phase = claim.Preparing
	both := shared("1", "gpu-1b-00-mig-1g-10gb-0")
	both.Devices = append(both.Devices, shared("", "gpu-1b-00-mig-1g-10gb-1").Devices...)
	for name, tc := range map[string]struct {
		held []claim.Claim
		pid  int
		xid  uint64
		want []string
	}{
		"a whole GPU":                      {[]claim.Claim{on("1", "gpu-1b-00", share.Terms{})}, 1, 31, []string{"Pod team-1/pod-1" + own}},
		"time slices":                      {[]claim.Claim{on("1", "gpu-1b-00-ts", slot), on("2", "gpu-1b-00-ts", slot)}, 1, 13, []string{"Pod team-1/pod-1" + own}},
		"shares of a MIG device":           {[]claim.Claim{shared("1", "gpu-1b-00-mig-1g-10gb-0"), shared("2", "gpu-1b-00-mig-1g-10gb-0"), shared("3", "gpu-1b-00-mig-1g-10gb-1")}, 1, 31, []string{"Pod team-1/pod-1" + own, "Pod team-2/pod-2" + ends}},
		"shares of two MIG devices":        {[]claim.Claim{both, shared("2", "gpu-1b-00-mig-1g-10gb-0")}, 1, 31, []string{"Pod team-1/pod-1" + own}},
		"a pod that joined the claim":      {[]claim.Claim{joined}, 1, 31, []string{"Pod team-1/pod-1" + own, "ResourceClaim team-1/1" + ends}},
		"a pod of a PodGroup":              {[]claim.Claim{group, shared("2", "gpu-1b-00")}, 8, 31, []string{"Pod team-2/pod-2" + ends, "ResourceClaim team-group/group" + own, "ResourceClaim team-group/group" + ends}},
		"a claim whose pods are not known": {[]claim.Claim{unknown, shared("2", "gpu-1b-00")}, 2, 31, []string{"Pod team-2/pod-2" + own}},
		"only a claim without known pods":  {[]claim.Claim{unknown}, 2, 31, nil},
		"a claim without containers":       {[]claim.Claim{shared("1", "gpu-1b-00"), preparing}, 1, 31, []string{"Pod team-1/pod-1" + own}},
		"a program that ended itself":      {[]claim.Claim{shared("1", "gpu-1b-00"), shared("2", "gpu-1b-00")}, 1, 45, []string{"Pod team-1/pod-1" + own}},
		"an unknown program, one pod":      {[]claim.Claim{on("1", "gpu-1b-00", share.Terms{})}, 0, 31, []string{"Pod team-1/pod-1" + own}},
		"an unknown program, shares":       {[]claim.Claim{shared("1", "gpu-1b-00"), shared("2", "gpu-1b-00")}, 0, 31, []string{"Pod team-1/pod-1" + ends, "Pod team-2/pod-2" + ends}},
		"an unknown program, slots":        {[]claim.Claim{on("1", "gpu-1b-00-ts", slot), on("2", "gpu-1b-00-ts", slot)}, 0, 31, nil},
		"a pod without a claim, shares":    {[]claim.Claim{shared("1", "gpu-1b-00"), shared("2", "gpu-1b-00")}, 5, 31, []string{"Pod team-1/pod-1" + ends, "Pod team-2/pod-2" + ends}},
		"no claims":                        {nil, 1, 31, nil},
		"an XID of the hardware":           {[]claim.Claim{on("1", "gpu-1b-00", share.Terms{})}, 1, 79, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulting(t, tc.held...)
			f.log(t, second, tc.xid, tc.pid)
			f.want(t, "after the fault", tc.want...)
		})
	}
}

func TestAFaultHasEachEventOnce(t *testing.T) {
	const own, ends = "Pod team-1/pod-1: ProgramFault", "Pod team-2/pod-2: SharedFault"
	f := newFaulting(t, shared("1", "gpu-1b-00"), shared("2", "gpu-1b-00"))
	f.log(t, 100*second, 13, 1)
	f.log(t, 100*second, 13, 1)
	// The driver stops and removes the work of the others.
	f.log(t, 101*second, 43, 2)
	f.log(t, 101*second, 45, 2)
	f.want(t, "of one fault", own, ends)
	f.wantCounts(t, map[string]int{"fault 13 own team-1": 1, "fault 13 other team-2": 1})
	f.log(t, 130*second, 31, 1)
	f.want(t, "of a program that fails again at once")
	f.wantCounts(t, map[string]int{"fault 13 own team-1": 1, "fault 13 other team-2": 1, "fault 31 own team-1": 1, "fault 31 other team-2": 1})
	f.log(t, 140*second, 31, 2)
	f.want(t, "of the other program", "Pod team-1/pod-1: SharedFault", "Pod team-2/pod-2: ProgramFault")
	f.log(t, 165*second, 31, 1)
	f.want(t, "a minute later", own, ends)

	// The two agents of an update read the same log.
	f.log(t, 300*second, 31, 1)
	f.restart()
	f.log(t, 300*second, 31, 1)
	f.want(t, "of both agents", own, ends)
}

func TestManyFaultsAreLimited(t *testing.T) {
	var held []claim.Claim
	for i := range 10 * faultsAtOnce {
		held = append(held, on(fmt.Sprint(i+1), "gpu-1b-00-ts", share.Terms{Slots: 1}))
	}
	f := newFaulting(t, held...)
	for i := range held {
		f.log(t, time.Duration(i)*second, 31, i+1)
	}
	if n := len(f.queue); n != faultsAtOnce {
		t.Errorf("%d events, want %d", n, faultsAtOnce)
	}
	if len(f.last) != 1 || len(f.told) > 2*faultsAtOnce {
		t.Errorf("%d GPUs and %d objects are remembered", len(f.last), len(f.told))
	}
}

func TestAnEventAboutAFaultIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulting(t, on("1", "gpu-1b-00", share.Terms{}))
		f.Clock = clock.RealClock{}
		fails := 0
		f.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			fails++
			return fails < 3, nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.send(ctx) }()
		f.log(t, second, 31, 1)
		<-time.After(time.Minute)
		synctest.Wait()
		f.want(t, "once the API server answers", "Pod team-1/pod-1: ProgramFault")
		cancel()
		<-done
	})
}

// The API server refuses longer notes.
func TestNotesAboutFaultsFitTheAPI(t *testing.T) {
	f := newFaulting(t, on("1", "gpu-1b-00", share.Terms{}))
	f.NodeName = strings.Repeat("n", 253)
	for i, of := range cause.Faults() {
		f.log(t, time.Duration(i)*time.Hour, of.XID, 1)
	}
	for _, e := range f.sent(t) {
		if len(e.Note) > 1000 || !strings.HasSuffix(e.Note, ".") {
			t.Errorf("%d bytes: %s", len(e.Note), e.Note)
		}
	}
}
