// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}
}

// holding returns held claims with the same names as [allocated].
func holding(names ...string) *claims {
	c := &claims{}
	device := statusDevice()
	device.ShareID = nil
	for _, name := range names {
		c.held = append(c.held, claim.Claim{
			Ref:   claim.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
			Phase: claim.Prepared, Devices: []claim.Device{device},
		})
	}
	return c
}

// reconcileTimes reconciles several times and returns the claims that each round
// released.
func reconcileTimes(t *testing.T, p *Plugin, c *claims, times int) [][]types.UID {
	t.Helper()
	var released [][]types.UID
	for range times {
		c.unprepared = nil
		p.reconcile(t.Context())
		released = append(released, c.unprepared)
		c.held = slices.DeleteFunc(c.held, func(h claim.Claim) bool { return slices.Contains(c.unprepared, h.UID) })
	}
	return released
}

func TestAClaimThatDoesNotNeedItsDevicesIsReleasedByTheSecondRound(t *testing.T) {
	for name, object := range map[string]func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim{
		"gone":     func(*resourceapi.ResourceClaim) *resourceapi.ResourceClaim { return nil },
		"replaced": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim { c.UID = "another"; return c },
		"deallocated": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation = nil
			return c
		},
		"allocated another GPU": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Device = "gpu-43-00"
			return c
		},
		"allocated another share of the GPU": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].ShareID = ptr.To[types.UID]("another")
			return c
		},
		"allocated on another node": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Pool = "elsewhere"
			return c
		},
		"allocated another driver's device": func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
			c.Status.Allocation.Devices.Results[0].Driver = "nic.example.com"
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{testNode(), allocated("kept")}
			if o := object(allocated("unneeded")); o != nil {
				objects = append(objects, o)
			}
			c := holding("kept", "unneeded")
			p := newTestPlugin(fake.NewClientset(objects...), c)
			if diff := cmp.Diff([][]types.UID{nil, {"uid-unneeded"}, nil}, reconcileTimes(t, p, c, 3)); diff != "" {
				t.Errorf("released in each round (-want +got):\n%s", diff)
			}
			// The missing device status of the kept claim is queued.
			if observations(p.Observer)["queue"] != 1 || p.status.wanted["uid-kept"] == nil {
				t.Errorf("status writes wait for %v, want the kept claim's", slices.Collect(maps.Keys(p.status.wanted)))
			}
		})
	}
}

func TestARoundThatWouldReleaseSeveralClaimsWaitsForTheNext(t *testing.T) {
	c := holding("kept", "one", "two")
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("kept")), c)
	for i, want := range []struct {
		released []types.UID
		heldBack int
	}{{nil, 2}, {nil, 2}, {[]types.UID{"uid-one", "uid-two"}, 0}} {
		if diff := cmp.Diff([][]types.UID{want.released}, reconcileTimes(t, p, c, 1)); diff != "" {
			t.Errorf("released in round %d (-want +got):\n%s", i+1, diff)
		}
		if got := observations(p.Observer)["held back"]; got != want.heldBack {
			t.Errorf("gpu_dra_reconcile_held_back is %v after round %d, want %v", got, i+1, want.heldBack)
		}
	}
}

func TestAnAPIServerWithoutTheNodeReleasesNothing(t *testing.T) {
	c := holding("one", "two")
	p := newTestPlugin(fake.NewClientset(allocated("one")), c)
	heard := hear(p)
	for i, released := range reconcileTimes(t, p, c, 4) {
		if released != nil {
			t.Errorf("round %d releases %q", i+1, released)
		}
	}
	if len(heard.contested) != 0 {
		t.Errorf("it makes %q contested", heard.contested)
	}
}

func TestAClaimIsReleasedAfterItsProcessesHaveEnded(t *testing.T) {
	c := holding("kept", "gone")
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("kept")), c)
	c.inUse = true
	if diff := cmp.Diff([][]types.UID{nil, nil, nil}, reconcileTimes(t, p, c, 3)); diff != "" {
		t.Errorf("released in each round (-want +got):\n%s", diff)
	}
	if got := observations(p.Observer)["held back"]; got != 1 {
		t.Errorf("gpu_dra_reconcile_held_back is %v, want 1", got)
	}
	c.inUse = false
	if diff := cmp.Diff([][]types.UID{{"uid-gone"}}, reconcileTimes(t, p, c, 1)); diff != "" {
		t.Errorf("released afterwards (-want +got):\n%s", diff)
	}
}

func TestAnErrorOfTheAPIServerRestartsTheRounds(t *testing.T) {
	failing := false
	client := fake.NewClientset(testNode(), allocated("kept"))
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, apierrors.NewInternalError(errors.New("etcd is down"))
	})
	c := holding("kept", "gone")
	p := newTestPlugin(client, c)
	heard := hear(p)
	var released [][]types.UID
	for _, failing = range []bool{false, true, false, false} {
		released = append(released, reconcileTimes(t, p, c, 1)...)
		// A claim that cannot be read is neither needed nor unneeded.
		if failing && len(heard.contested)+len(heard.needed) != 0 {
			t.Errorf("contested %q, needed %q", heard.contested, heard.needed)
		}
	}
	if diff := cmp.Diff([][]types.UID{nil, nil, nil, {"uid-gone"}}, released); diff != "" {
		t.Errorf("released in each round (-want +got):\n%s", diff)
	}
}

// status404 returns a Status as an API server encodes it.
func status404(message, details string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":"NotFound","details":%s,"code":404}`, message, details)
}

func TestOnlyA404AboutTheClaimMeansThatItIsGone(t *testing.T) {
	const about = `{"name":"one","group":"resource.k8s.io","kind":"resourceclaims"}`
	for name, c := range map[string]struct {
		contentType, body string
		want              bool
	}{
		"the claim is not found":                           {"application/json", status404(`resourceclaims.resource.k8s.io "one" not found`, about), true},
		"the API server does not serve the API":            {"text/plain; charset=utf-8", "404 page not found\n", false},
		"a load balancer's page":                           {"text/html", "<html><body><h1>404 Not Found</h1></body></html>", false},
		"a load balancer's page without a type":            {"", "<html><body><h1>404 Not Found</h1></body></html>", false},
		"a gateway's JSON":                                 {"application/json", `{"error":"no such route"}`, false},
		"nothing":                                          {"", "", false},
		"a Status without details":                         {"application/json", status404("not found", "null"), false},
		"a Status about a path":                            {"application/json", status404("the server could not find the requested resource", "{}"), false},
		"a Status about a path with the request's details": {"application/json", status404("the server could not find the requested resource (get resourceclaims.resource.k8s.io one)", about), false},
		"another claim is not found":                       {"application/json", status404(`resourceclaims.resource.k8s.io "two" not found`, `{"name":"two","group":"resource.k8s.io","kind":"resourceclaims"}`), false},
		"the namespace is not found":                       {"application/json", status404(`namespaces "one" not found`, `{"name":"one","kind":"namespaces"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.contentType}
				if c.contentType == "" {
					w.Header()["Content-Type"] = nil
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Fatalf("client-go makes %v of it, want what it takes for a 404", err)
			}
			if got := isGone(err, "one"); got != c.want {
				t.Errorf("the claim is gone: %v, want %v (%v)", got, c.want, err)
			}
		})
	}
	written := apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "one")
	written.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "404"}}
	if isGone(written, "one") {
		t.Error("a claim is gone by a Status that client-go has written and not the API server")
	}
	if isGone(errors.New("connection refused"), "one") || isGone(nil, "one") {
		t.Error("a claim is gone without a 404")
	}
}

// A load balancer between the agent and the API server answers 404 for a minute.
func Test404sOfALoadBalancerReleaseNothing(t *testing.T) {
	client := fake.NewClientset(testNode())
	client.PrependReactor("get", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet,
			schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceclaims"}, name, "<html>404</html>", 0, true)
	})
	c := holding("one", "two")
	p := newTestPlugin(client, c)
	for i, released := range reconcileTimes(t, p, c, 12) {
		if released != nil {
			t.Fatalf("round %d releases %q", i+1, released)
		}
	}
}

// counted is a rate limiter that counts calls and never waits.
type counted struct {
	flowcontrol.RateLimiter
	waits int
}

func (c *counted) Wait(context.Context) error { c.waits++; return nil }

func TestReconciliationLimitsItsReads(t *testing.T) {
	c := holding("one", "two", "three")
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("one"), allocated("two"), allocated("three")), c)
	limiter := &counted{}
	p.reads = limiter
	p.reconcile(t.Context())
	if limiter.waits != 3 {
		t.Errorf("waited %d times for 3 reads", limiter.waits)
	}
}

func TestNodesThatBootTogetherReadAtDifferentTimes(t *testing.T) {
	const nodes, interval, parts = 1000, 5 * time.Minute, 10
	var in [parts]int
	for i := range nodes {
		at := firstRound(fmt.Sprintf("node-%d", i), interval)
		if at < 0 || at >= interval {
			t.Fatalf("node-%d begins after %v, want less than %v", i, at, interval)
		}
		in[int(at*parts/interval)]++
	}
	if most := slices.Max(in[:]); most > nodes/parts*2 {
		t.Errorf("%d of %d nodes ask in the same %v: %v", most, nodes, interval/parts, in)
	}
}

func TestClaimsAreRepairedAtTheStartAndComparedAtTheNodesTime(t *testing.T) {
	client := fake.NewClientset(testNode(), allocated("one"))
	c := holding("one")
	c.recovered = make(chan struct{}, 1)
	p := newTestPlugin(client, c)
	clock := testclock.NewFakeClock(testTime)
	p.Clock, p.ReconcileInterval = clock, 5*time.Minute
	read := make(chan struct{}, 1)
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		read <- struct{}{}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.reconcileLoop(ctx) }()
	<-c.recovered
	for !clock.HasWaiters() {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait for the node's time")
		}
	}
	clock.Step(firstRound(p.NodeName, p.ReconcileInterval) - 1)
	select {
	case <-read:
		t.Error("a claim was read before the node's time")
	default:
	}
	clock.Step(1)
	<-read
	cancel()
	<-ended
}
