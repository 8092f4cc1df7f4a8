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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// claims is a fake of Claims with the state set by a test. It records the calls.
type claims struct {
	prepare func(*resourceapi.ResourceClaim) ([]claim.Device, error)
	held    []claim.Claim

	// inUse is set while processes compute on the devices of every claim.
	inUse bool
	// released, if set, is called when a claim is released.
	released func()
	// recovered, if set, gets an item after each Recover.
	recovered chan struct{}

	// foreign are on held devices; checked and foreignErr are the other results.
	foreign    []claim.ForeignProcess
	checked    []kind.Name
	foreignErr error
	// limitChecks are of the devices with limited containers; limitsErr is the error of
	// reading the devices.
	limitChecks []claim.LimitCheck
	limitsErr   error

	mu         sync.Mutex
	unprepared []types.UID
}

func (c *claims) Prepare(_ context.Context, object *resourceapi.ResourceClaim, _ ...func(error)) ([]claim.Device, error) {
	return c.prepare(object)
}

func (c *claims) Unprepare(_ context.Context, uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unprepared = append(c.unprepared, uid)
	return nil
}

func (c *claims) WhyUnneeded(held claim.Claim, object *resourceapi.ResourceClaim) string {
	return held.WhyUnneeded(object, testDriver, "node")
}

func (c *claims) Release(ctx context.Context, held claim.Claim, object *resourceapi.ResourceClaim) (bool, error) {
	if c.WhyUnneeded(held, object) == "" {
		return false, errors.New("the claim is needed")
	}
	if c.inUse {
		return false, gpu.ErrInUse
	}
	if c.released != nil {
		c.released()
	}
	return true, c.Unprepare(ctx, held.UID)
}

func (c *claims) RecordConsumers(context.Context) error { return nil }

func (c *claims) RecordPods(context.Context, claim.Claim, *resourceapi.ResourceClaim) error {
	return nil
}

func (c *claims) ForeignProcesses(context.Context, []claim.Claim) ([]claim.ForeignProcess, []kind.Name, error) {
	return c.foreign, c.checked, c.foreignErr
}

func (c *claims) CheckLimits(context.Context) ([]claim.LimitCheck, error) {
	return c.limitChecks, c.limitsErr
}

func (c *claims) Held(context.Context) ([]claim.Claim, error) { return c.held, nil }

func (c *claims) LostSpecs(context.Context) ([]types.UID, error) { return nil, nil }

func (c *claims) Recover(context.Context) (claim.Report, error) {
	if c.recovered != nil {
		c.recovered <- struct{}{}
	}
	return claim.Report{}, errors.New("one of the claims cannot be repaired")
}

func newTestPlugin(client *fake.Clientset, c *claims) *Plugin {
	observer := newObserved()
	clock := testclock.NewFakeClock(testTime)
	o := Options{
		Place: place.Place{DriverName: testDriver, DataDir: "/nowhere", CDIDir: "/nowhere"}, NodeName: "node", Client: client, Claims: c, Observer: observer,
		Ledger: untold{}, Foreign: untold{}, Hardware: untold{}, Accounts: untold{}, Clock: clock, Tasks: noTasks{},
	}
	return &Plugin{
		Options: o, events: newEvents(o), repairs: make(chan struct{}, 1), status: newStatusWriter(client.ResourceV1(), testDriver, observer),
		reads: flowcontrol.NewFakeAlwaysRateLimiter(),
	}
}

func allocated(name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: testDriver, Pool: "node", Device: "gpu-1b-00"},
			}},
		}},
	}
}

func TestClaimsOfOneCallArePreparedConcurrently(t *testing.T) {
	var arrived sync.WaitGroup
	arrived.Add(3)
	p := newTestPlugin(fake.NewClientset(), &claims{prepare: func(c *resourceapi.ResourceClaim) ([]claim.Device, error) {
		arrived.Done()
		arrived.Wait() // blocks forever unless all three run concurrently
		if c.Name == "bad" {
			return nil, errors.New("device gpu-1b-00: GPU lost")
		}
		return []claim.Device{statusDevice()}, nil
	}})
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{allocated("one"), allocated("bad"), allocated("two")})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 || len(results["uid-one"].Devices) != 1 || len(results["uid-two"].Devices) != 1 || results["uid-bad"].Err == nil {
		t.Errorf("results = %+v, want a device for each good claim and an error for the bad one", results)
	}
	if got := results["uid-one"].Devices[0].Metadata.Attributes["uuid"].StringValue; got == nil || *got != statusDevice().UUID {
		t.Errorf("metadata has UUID %v, want %s", got, statusDevice().UUID)
	}
	got := observations(p.Observer)
	if got["prepared gpu "] != 2 || got["prepared unknown PrepareFailed"] != 1 {
		t.Errorf("observed %v, want two claims and a refusal", got)
	}
}

func TestEveryClaimOfACallIsUnprepared(t *testing.T) {
	c := &claims{}
	p := newTestPlugin(fake.NewClientset(), c)
	results, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: "a"}, {UID: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[types.UID]error{"a": nil, "b": nil}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	slices.Sort(c.unprepared)
	if diff := cmp.Diff([]types.UID{"a", "b"}, c.unprepared); diff != "" {
		t.Errorf("unprepared (-want +got):\n%s", diff)
	}
}

func TestAFailedServerIsFatalAndFailedPublishingIsNot(t *testing.T) {
	var fatal error
	var told []string
	p := &Plugin{Options: Options{Observer: newObserved(), Fatal: func(err error) { fatal = err }, PublishError: func(_ context.Context, err error, msg string) {
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
		if got := observations(p.Observer)["publish "+reason]; got != 1 {
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
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}
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
		if err := newTestPlugin(client, nil).publishFirst(t.Context(), resources); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"00000-gpu.nvidia.com-node-", "00001-gpu.nvidia.com-node-"}, created(client)); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
	})
	t.Run("an agent that was here before", func(t *testing.T) {
		left := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "00000-left"}, Spec: resourceapi.ResourceSliceSpec{Driver: testDriver}}
		client := fake.NewClientset(node, left)
		if err := newTestPlugin(client, nil).publishFirst(t.Context(), resources); err != nil {
			t.Fatal(err)
		}
		if got := created(client); len(got) != 0 {
			t.Errorf("created %q although slices exist", got)
		}
	})
	t.Run("a node object that does not exist", func(t *testing.T) {
		err := newTestPlugin(fake.NewClientset(), nil).publishFirst(t.Context(), resources)
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "read the node's object") {
			t.Errorf("error %v, want that there is no such node", err)
		}
	})
}

func TestRegistrationFollowsTheKubeletsLastStatus(t *testing.T) {
	r := newRegistration()
	notify := func(status *registerapi.RegistrationStatus) {
		t.Helper()
		if _, err := r.intercept(t.Context(), status, nil, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
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
