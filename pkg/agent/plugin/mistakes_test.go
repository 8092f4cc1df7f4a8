// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
)

// sharing returns the claims "one" and "two" as shares of a GPU by MPS, and their objects.
func sharing() (*claims, []*resourceapi.ResourceClaim) {
	held := holding("one", "two")
	var objects []*resourceapi.ResourceClaim
	for i := range held.held {
		held.held[i].Devices[0].Terms = share.Terms{Share: &share.Amount{Memory: 1 << 30}, MPS: &share.Client{Daemon: held.held[i].Devices[0].Name}}
		object := used(held.held[i].Name, "trainer")
		object.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}
		object.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}},
		}}}
		objects = append(objects, object)
	}
	return held, objects
}

// in returns a list of containers with their claims, as the kubelet lists them.
func in(containers ...ContainerClaims) func(context.Context) ([]ContainerClaims, error) {
	return func(context.Context) ([]ContainerClaims, error) { return containers, nil }
}

func container(pod, name string, claims ...string) ContainerClaims {
	return ContainerClaims{Namespace: "team", Pod: pod, Container: name, Claims: claims}
}

// tolds returns the events as "object: reason", in order.
func tolds(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	list, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s %s/%s: %s %s", e.Regarding.Kind, e.Regarding.Namespace, e.Regarding.Name, e.Type, e.Reason))
		if e.ReportingController != testDriver || e.ReportingInstance != "node" || e.Action == "" || len(e.Note) > 1024 {
			t.Errorf("event %+v", e)
		}
	}
	slices.Sort(all)
	return all
}

// mistakesOf returns the conditions about mistakes that are queued for a claim.
func mistakesOf(p *Plugin, uid types.UID) []string {
	var all []string
	if status := p.status.wanted[uid]; status != nil {
		for _, c := range status.devices[0].conditions() {
			if c.Type == v1alpha1.ConditionShareRoundedUp || c.Type == v1alpha1.ConditionSeveralShares {
				all = append(all, c.Type+" "+c.Reason)
			}
		}
	}
	return all
}

func TestMistakesInClaimsAreConditionsAndEvents(t *testing.T) {
	rounded := func(_ *claims, objects []*resourceapi.ResourceClaim) {
		objects[0].Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("300Mi")
	}
	several := []string{
		"Pod team/trainer: Warning SeveralShares",
		"ResourceClaim team/one: Warning SeveralShares", "ResourceClaim team/two: Warning SeveralShares",
	}
	for name, c := range map[string]struct {
		given      func(*claims, []*resourceapi.ResourceClaim)
		containers func(context.Context) ([]ContainerClaims, error)
		one, two   []string
		events     []string
	}{
		"none": {containers: in(container("trainer", "main", "one"), container("trainer", "other", "two"))},
		"a share that is rounded up": {
			given: rounded, one: []string{"ShareRoundedUp LeastShare"},
			events: []string{"Pod team/trainer: Warning ShareRoundedUp", "ResourceClaim team/one: Warning ShareRoundedUp"},
		},
		"two shares in a container": {
			containers: in(container("trainer", "main", "two", "one")), one: []string{"SeveralShares OneMPSDaemon"}, two: []string{"SeveralShares OneMPSDaemon"}, events: several,
		},
		"two shares in a container of a pod that the claims are not for": {containers: in(container("other", "main", "one", "two"))},
		"a share and a whole GPU in a container": {
			given: func(c *claims, _ []*resourceapi.ResourceClaim) {
				c.held[1].Devices = slices.Clone(c.held[1].Devices)
				c.held[1].Devices[0].Terms = share.Terms{}
			},
			containers: in(container("trainer", "main", "one", "two")),
		},
		"a kubelet that does not answer": {containers: func(context.Context) ([]ContainerClaims, error) { return nil, errors.New("away") }},
	} {
		t.Run(name, func(t *testing.T) {
			held, objects := sharing()
			if c.given != nil {
				c.given(held, objects)
			}
			client := fake.NewClientset(testNode(), objects[0], objects[1])
			p := newTestPlugin(client, held)
			p.containers = c.containers
			for _, round := range []string{"first", "second"} {
				p.reconcile(t.Context())
				if diff := cmp.Diff([][]string{c.one, c.two}, [][]string{mistakesOf(p, "uid-one"), mistakesOf(p, "uid-two")}); diff != "" {
					t.Errorf("conditions of the %s round (-want +got):\n%s", round, diff)
				}
				if diff := cmp.Diff(c.events, tolds(t, client)); diff != "" {
					t.Errorf("events of the %s round (-want +got):\n%s", round, diff)
				}
			}
		})
	}
}

// The condition is the record of the event: a claim that has it gets no other one, and a claim
// whose event cannot be created gets neither.
func TestTheConditionOfAMistakeIsTheRecordOfItsEvent(t *testing.T) {
	held, objects := sharing()
	objects[0].Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("300Mi")
	client := fake.NewClientset(testNode(), objects[0], objects[1])
	refused := true
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused, nil, errors.New("overloaded")
	})
	p := newTestPlugin(client, held)
	p.reconcile(t.Context())
	if got := mistakesOf(p, "uid-one"); len(got) > 0 {
		t.Errorf("without its event, the claim gets %q", got)
	}
	refused = false
	p.reconcile(t.Context())
	if got := tolds(t, client); len(got) != 2 {
		t.Errorf("events %q", got)
	}
	// The event's time to live ends, and the API server has the condition.
	one := p.status.wanted["uid-one"].devices[0]
	objects[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: testDriver, Pool: one.pool, Device: one.device, Conditions: one.conditions()}}
	if message := one.conditions()[1].Message; !strings.HasPrefix(message, "claim one requests 300Mi of memory (request gpu), and holds 1Gi: ") {
		t.Errorf("the condition says %q", message)
	}
	client = fake.NewClientset(testNode(), objects[0], objects[1])
	p = newTestPlugin(client, held)
	p.reconcile(t.Context())
	if got := tolds(t, client); len(got) > 0 {
		t.Errorf("the events are repeated: %q", got)
	}
	if got := mistakesOf(p, "uid-one"); len(got) != 1 {
		t.Errorf("the condition is dropped: %q", got)
	}
}

func TestEventsAboutMistakesAreLimited(t *testing.T) {
	held, objects := sharing()
	var all []runtime.Object
	held.held = nil
	for i := range 2 * eventsAtOnce {
		name := fmt.Sprintf("claim-%d", i)
		object := objects[0].DeepCopy()
		object.Name, object.UID, object.Status.ReservedFor = name, types.UID("uid-"+name), nil
		object.Spec.Devices.Requests[0].Exactly.Capacity.Requests["memory"] = resource.MustParse("300Mi")
		all = append(all, object)
		one := holding(name).held[0]
		held.held = append(held.held, claim.Claim{Ref: one.Ref, Phase: one.Phase, Devices: one.Devices})
	}
	client := fake.NewClientset(append(all, testNode())...)
	p := newTestPlugin(client, held)
	p.reconcile(t.Context())
	if got := tolds(t, client); len(got) != eventsAtOnce {
		t.Errorf("%d events in a round", len(got))
	}
}
