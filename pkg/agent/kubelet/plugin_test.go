// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/report"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// claims is a fake of [Claims] with the results set by a test. It records the calls.
type claims struct {
	prepare func(*resourceapi.ResourceClaim) ([]claim.Device, error)
	// stuck is the error of an unprepare.
	stuck error

	mu         sync.Mutex
	unprepared []types.UID
}

func (c *claims) PrepareAgain(context.Context, *resourceapi.ResourceClaim, ...func(error)) ([]claim.Device, error) {
	return nil, claim.ErrUnprepared
}

func (c *claims) Prepare(_ context.Context, object *resourceapi.ResourceClaim, _ ...func(error)) ([]claim.Device, error) {
	return c.prepare(object)
}

func (c *claims) Unprepare(_ context.Context, uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unprepared = append(c.unprepared, uid)
	return c.stuck
}

func (c *claims) Held(context.Context) ([]claim.Claim, error) { return nil, nil }

// told is a [Ledger], [Hardware] and [Accounts] that records the calls of the plugin.
type told struct {
	mu     sync.Mutex
	events []string
}

func (t *told) tell(event string, of ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, strings.TrimSpace(fmt.Sprintln(append([]any{event}, of...)...)))
}

func (t *told) Changed() { t.tell("changed") }

func (t *told) SetRefused(uid types.UID, refused bool) { t.tell("refused", uid, refused) }

func (t *told) PrepareFailed(err error) { t.tell("failed", err) }

func (t *told) Seen(object *resourceapi.ResourceClaim) { t.tell("seen", object.UID) }

func (t *told) Held(object *resourceapi.ResourceClaim, devices []claim.Device) {
	t.tell("held", object.UID, len(devices))
}

func (t *told) Released(uid types.UID) { t.tell("released", uid) }

func newTestPlugin(client *fake.Clientset, c *claims) (*Plugin, *told) {
	t, observed, clock := &told{}, agenttest.NewObserved(), testclock.NewFakeClock(agenttest.Now())
	return &Plugin{Options: Options{
		Place: place.Place{DriverName: agenttest.Driver}, NodeName: "node", Client: client, Claims: c, Observer: observed,
		Ledger: t, Hardware: t, Accounts: t, Clock: clock, Calls: place.NewCalls(),
		Reporter: report.New(report.Options{DriverName: agenttest.Driver, NodeName: "node", Client: client, Claims: c, Observer: observed, Clock: clock}),
	}}, t
}

// observations returns the metrics.
func (p *Plugin) observations() map[string]int { return p.Observer.(*agenttest.Observed).All() }

// prepareOne and unprepareOne call the plugin for the claim "one".
func (p *Plugin) prepareOne(ctx context.Context) kubeletplugin.PrepareResult {
	results, _ := p.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{agenttest.Allocated("one")})
	return results["uid-one"]
}

func (p *Plugin) unprepareOne(ctx context.Context) error {
	results, _ := p.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: "uid-one"}})
	return results["uid-one"]
}

func oneDevice(*resourceapi.ResourceClaim) ([]claim.Device, error) {
	return []claim.Device{agenttest.Device()}, nil
}

// The node publishes what claims hold, meters it, and scans hardware that may have changed.
func TestTheNodeLearnsWhatBecomesOfClaims(t *testing.T) {
	prepare := func(p *Plugin) { _ = p.prepareOne(t.Context()) }
	unprepare := func(p *Plugin) { _ = p.unprepareOne(t.Context()) }
	for name, tc := range map[string]struct {
		claims *claims
		do     func(*Plugin)
		want   []string
	}{
		"prepared": {&claims{prepare: oneDevice}, prepare, []string{"seen uid-one", "refused uid-one false", "held uid-one 1", "changed"}},
		"a prepare that fails": {
			&claims{prepare: func(*resourceapi.ResourceClaim) ([]claim.Device, error) { return nil, gpu.ErrLost }}, prepare,
			[]string{"seen uid-one", "failed GPU lost", "changed"},
		},
		"unprepared":                           {&claims{}, unprepare, []string{"refused uid-one false", "changed", "released uid-one"}},
		"an unprepare that fails":              {&claims{stuck: errors.New("bad")}, unprepare, []string{"refused uid-one false", "changed"}},
		"an unprepare that its processes deny": {&claims{stuck: gpu.ErrInUse}, unprepare, []string{"refused uid-one true", "changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, told := newTestPlugin(fake.NewClientset(), tc.claims)
			tc.do(p)
			require.Same(t, "events", tc.want, told.events)
		})
	}
}

func TestAFailedUnprepareKeepsTheQueuedStatus(t *testing.T) {
	c := &claims{prepare: oneDevice, stuck: errors.New("the GPU is lost")}
	p, _ := newTestPlugin(fake.NewClientset(), c)
	p.prepareOne(t.Context())
	if err := p.unprepareOne(t.Context()); err == nil {
		t.Fatal("the claim counts as unprepared")
	}
	if got := p.observations()["queue"]; got != 1 {
		t.Errorf("%v statuses are to be written, want the one of the claim, which holds its device", got)
	}
	c.stuck = nil
	must(t, p.unprepareOne(t.Context()))
	if got := p.observations()["queue"]; got != 0 {
		t.Errorf("%v statuses are to be written, want none: the claim is unprepared", got)
	}
}

func TestClaimsOfOneCallArePreparedConcurrently(t *testing.T) {
	var arrived sync.WaitGroup
	arrived.Add(3)
	p, _ := newTestPlugin(fake.NewClientset(), &claims{prepare: func(c *resourceapi.ResourceClaim) ([]claim.Device, error) {
		arrived.Done()
		arrived.Wait() // blocks forever unless all three run concurrently
		if c.Name == "bad" {
			return nil, errors.New("device gpu-1b-00: GPU lost")
		}
		return oneDevice(c)
	}})
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{agenttest.Allocated("one"), agenttest.Allocated("bad"), agenttest.Allocated("two")})
	must(t, err)
	if len(results) != 3 || len(results["uid-one"].Devices) != 1 || len(results["uid-two"].Devices) != 1 || results["uid-bad"].Err == nil {
		t.Errorf("results = %+v, want a device for each good claim and an error for the bad one", results)
	}
	if got := results["uid-one"].Devices[0].Metadata.Attributes["uuid"].StringValue; got == nil || *got != agenttest.Device().UUID {
		t.Errorf("metadata has UUID %v, want %s", got, agenttest.Device().UUID)
	}
	got := p.observations()
	if got["prepared gpu "] != 2 || got["prepared unknown PrepareFailed"] != 1 {
		t.Errorf("observed %v, want two claims and a refusal", got)
	}
}

func TestEveryClaimOfACallIsUnprepared(t *testing.T) {
	c := &claims{}
	p, _ := newTestPlugin(fake.NewClientset(), c)
	results, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "a"}, {UID: "b"}})
	must(t, err)
	require.Same(t, "results", map[types.UID]error{"a": nil, "b": nil}, results)
	slices.Sort(c.unprepared)
	require.Same(t, "unprepared", []types.UID{"a", "b"}, c.unprepared)
}

func TestAFailedServerIsFatalAndFailedPublishingIsNot(t *testing.T) {
	var fatal error
	var told []string
	p := &Plugin{Options: Options{Observer: agenttest.NewObserved(), Fatal: func(err error) { fatal = err }, PublishError: func(_ context.Context, err error, msg string) {
		told = append(told, fmt.Sprintf("%s: %v", msg, err))
	}}}
	p.HandleError(t.Context(), recoverable{&resourceslice.DroppedFieldsError{
		PoolName: "node", DesiredSlice: &resourceapi.ResourceSlice{}, ActualSlice: &resourceapi.ResourceSlice{},
	}}, "create ResourceSlice")
	p.HandleError(t.Context(), recoverable{apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, "x", nil)}, "create ResourceSlice")
	if fatal != nil || len(told) != 2 {
		t.Fatalf("fatal = %v, told = %q, want two errors to retry", fatal, told)
	}
	for _, reason := range []string{"DroppedFields", "Forbidden"} {
		if got := p.observations()["publish "+reason]; got != 1 {
			t.Errorf("gpu_dra_slice_publish_errors_total{reason=%q} = %v, want 1", reason, got)
		}
	}
	p.HandleError(t.Context(), errors.New("accept: too many open files"), "DRA gRPC server failed")
	if fatal == nil || fatal.Error() != "DRA gRPC server failed: accept: too many open files" {
		t.Errorf("fatal = %v", fatal)
	}
}

// recoverable marks an error as recoverable, like upstream's helper.
type recoverable struct{ error }

func (recoverable) Is(target error) bool { return target == kubeletplugin.ErrRecoverable }
func (r recoverable) Unwrap() error      { return r.error }

func TestFirstSlicesAreCreatedOnlyIfTheNodeHasNone(t *testing.T) {
	node := agenttest.Node()
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{"node": {Slices: []resourceslice.Slice{
		{Devices: []resourceapi.Device{{Name: "gpu-1b-00"}}},
		{Devices: []resourceapi.Device{{Name: "gpu-43-00"}}},
	}}}}
	created := func(client *fake.Clientset) (names []string) {
		for _, action := range client.Actions() {
			if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
				slice := create.GetObject().(*resourceapi.ResourceSlice)
				names = append(names, slice.GenerateName)
				if o := slice.OwnerReferences; len(o) != 1 || o[0].UID != "node-uid" {
					t.Errorf("owners of %s: %v, want the node", slice.GenerateName, o)
				}
				if p := slice.Spec.Pool; p.ResourceSliceCount != 2 || p.Generation != 1 {
					t.Errorf("pool of %s: %+v", slice.GenerateName, p)
				}
			}
		}
		return names
	}
	t.Run("a new node", func(t *testing.T) {
		client := fake.NewClientset(node)
		client.PrependReactor("create", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
			slice := a.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
			slice.Name = slice.GenerateName + "xxxxx" // as the API server does
			return false, nil, nil
		})
		p, _ := newTestPlugin(client, nil)
		must(t, p.publishFirst(t.Context(), resources))
		require.Same(t, "created", []string{"00000-gpu.nvidia.com-node-", "00001-gpu.nvidia.com-node-"}, created(client))
	})
	t.Run("an agent that was here before", func(t *testing.T) {
		left := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "00000-left"}, Spec: resourceapi.ResourceSliceSpec{Driver: agenttest.Driver}}
		client := fake.NewClientset(node, left)
		p, _ := newTestPlugin(client, nil)
		must(t, p.publishFirst(t.Context(), resources))
		if got := created(client); len(got) != 0 {
			t.Errorf("created %q although slices exist", got)
		}
	})
	t.Run("a node object that does not exist", func(t *testing.T) {
		p, _ := newTestPlugin(fake.NewClientset(), nil)
		err := p.publishFirst(t.Context(), resources)
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "read the node's object") {
			t.Errorf("error %v, want that there is no such node", err)
		}
	})
}

func TestRegistrationFollowsTheKubeletsLastStatus(t *testing.T) {
	r := newRegistration()
	notify := func(status *registerapi.RegistrationStatus) {
		t.Helper()
		_, err := r.intercept(t.Context(), status, nil, func(context.Context, any) (any, error) { return nil, nil })
		must(t, err)
	}
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "--kubelet-registry-dir") {
		t.Errorf("before registration: %v, want a hint", err)
	}
	notify(&registerapi.RegistrationStatus{Error: "no such version"})
	if err := r.err(); err == nil || err.Error() != "the kubelet refused this plugin: no such version" {
		t.Errorf("after a refusal: %v", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the agent ends"))
	if err := r.wait(ended); err == nil || !strings.Contains(err.Error(), "the agent ends") || !strings.Contains(err.Error(), "no such version") {
		t.Errorf("waiting for a kubelet that refuses: %v, want both causes", err)
	}
	// The kubelet registers the plugin again after each restart.
	for range 2 {
		notify(&registerapi.RegistrationStatus{PluginRegistered: true})
	}
	if err := r.err(); err != nil {
		t.Errorf("after registration: %v", err)
	}
	if err := r.wait(t.Context()); err != nil {
		t.Errorf("waiting after registration: %v", err)
	}
}

func TestPrepareReturnsTheShareIDToTheKubelet(t *testing.T) {
	p, _ := newTestPlugin(fake.NewClientset(), &claims{prepare: func(*resourceapi.ResourceClaim) ([]claim.Device, error) {
		device := agenttest.Device()
		device.CDIDeviceIDs = []string{"gpu.nvidia.com/claim=one"}
		return []claim.Device{device}, nil
	}})
	got := p.prepareOne(t.Context()).Devices
	for i := range got {
		got[i].Metadata = nil
	}
	want := []kubeletplugin.Device{{
		Requests: []string{"gpu"}, PoolName: "node", DeviceName: "gpu-1b-00", ShareID: agenttest.Share(), CDIDeviceIDs: []string{"gpu.nvidia.com/claim=one"},
	}}
	require.Same(t, "devices", want, got)
}

func TestNothingIsPublishedBeforeTheKubeletHasRegisteredThePlugin(t *testing.T) {
	client := fake.NewClientset()
	p, _ := newTestPlugin(client, &claims{})
	p.registration = newRegistration()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the agent ends"))
	if err := p.Publish(ctx, resourceslice.DriverResources{}); err == nil {
		t.Error("published, want an error: the kubelet has not registered the plugin")
	}
	if got := client.Actions(); len(got) != 0 {
		t.Errorf("requests to the API server: %v, want none yet", got)
	}
}

var must = require.NoError
