// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// keys returns the keys of the rows of a page, in order.
func keys(text string) []string {
	var all []string
	for _, found := range regexp.MustCompile(`<tr role="row" data-key="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// ago returns a time before now.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

// waitingWorld has pods that wait since different times, a claim of another driver and one that
// waits for another driver.
func waitingWorld(t *testing.T) *fleettest.World {
	w := shared(t)
	w.Claims[0].CreationTimestamp = ago(3 * time.Hour)
	w.Claims[1].CreationTimestamp = ago(5 * time.Minute)
	for i, name := range []string{"newest", "oldest", "middle"} {
		pod, claim := fleettest.Pod(name), fleettest.Claim(name, "class=mps.nvidia.com memory=100Gi")
		pod.CreationTimestamp = ago([]time.Duration{time.Minute, 50 * time.Hour, 2 * time.Hour}[i])
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}}
		w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, claim)
	}
	w.Classes = append(w.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.net"`}}},
	}})
	uplink, later, pod := fleettest.Claim("uplink", "class=nic"), fleettest.Claim("later", "class=nic"), fleettest.Pod("later")
	uplink.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: "dra.net", Pool: "a", Device: "nic-0"},
	}}}
	pod.Status.Phase = corev1.PodPending
	w.Claims, w.Pods = append(w.Claims, uplink, later), append(w.Pods, pod)
	return w
}

// The pod that waits longest is the first, with its reason and the remedy.
func TestWaitingPodsHaveReasonsAndAges(t *testing.T) {
	site := pages(t, &world{World: waitingWorld(t)})
	status, text := open(t, site, "/pods")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	want := []string{"default/oldest", "default/middle", "default/newest"}
	if diff := cmp.Diff(want, keys(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, part := range []string{">2d2h</time>", ">120m</time>", ">60s</time>", "No device is large enough", "Request less"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	if strings.Contains(text, "default/later") {
		t.Error("a pod that waits for devices of another driver is listed")
	}
	if _, text := open(t, site, "/"); !strings.Contains(text, `href="/pods">3</a>`) {
		t.Errorf("the fleet does not have 3 waiting pods: %s", text)
	}
}

func TestClaimsHaveClassesAmountsAndAges(t *testing.T) {
	site := pages(t, &world{World: waitingWorld(t)})
	_, text := open(t, site, "/claims")
	for _, part := range []string{">mps.nvidia.com<", ">compute 50, memory 7Gi<", ">gpu.nvidia.com<", ">1 device<", ">3h</time>", ">5m</time>"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	for _, other := range []string{"default/uplink", "default/later"} {
		if strings.Contains(text, other) {
			t.Errorf("%s is listed, a claim for devices of another driver", other)
		}
	}
}

func TestListsAreSortedByTheAddress(t *testing.T) {
	w := waitingWorld(t)
	site := pages(t, &world{World: w})
	for target, want := range map[string]struct {
		keys  []string
		state string
	}{
		"/pods?sort=age":            {[]string{"default/newest", "default/middle", "default/oldest"}, `aria-sort="ascending"><a href="?sort=-age">`},
		"/pods?sort=pod":            {[]string{"default/middle", "default/newest", "default/oldest"}, `aria-sort="ascending"><a href="?sort=-pod">`},
		"/pods?sort=-pod":           {[]string{"default/oldest", "default/newest", "default/middle"}, `aria-sort="descending"><a href="?sort=pod">`},
		"/pods?sort=reason":         {[]string{"default/oldest", "default/middle", "default/newest"}, `aria-sort="descending"><a href="?sort=age">`},
		"/pods?sort=x&q=middle":     {[]string{"default/middle"}, `<a href="?q=middle&amp;sort=pod">`},
		"/claims?sort=-state&q=use": {[]string{"default/half", "default/whole"}, `name="sort" value="-state"`},
		"/claims?sort=-age&q=use":   {[]string{"default/whole", "default/half"}, `aria-sort="descending"`},
	} {
		_, text := open(t, site, target)
		if diff := cmp.Diff(want.keys, keys(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
		if !strings.Contains(text, want.state) {
			t.Errorf("%s: no %s in %s", target, want.state, text)
		}
	}
}

// The whole list is sorted, and not the part of it that is shown.
func TestAListIsSortedBeforeItIsCut(t *testing.T) {
	w := fleettest.New(t, "node-0=t4 share")
	w.Repeat(120)
	_, text := open(t, pages(t, &world{World: w}), "/?sort=-node&page=1")
	if got := keys(text); len(got) != perPage || got[0] != "node-99" {
		t.Errorf("got %v", got)
	}
	if !strings.Contains(text, `href="?page=2&amp;sort=-node"`) {
		t.Error("the next part is not sorted")
	}
}

func TestTaintsHaveLinksAndAges(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-3b-00", "xid-79")
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			for j := range slice.Spec.Devices[i].Taints {
				added := ago(12 * time.Minute)
				slice.Spec.Devices[i].Taints[j].TimeAdded = &added
			}
		}
	}
	site := pages(t, &world{World: w})
	for _, target := range []string{"/", "/nodes/a", "/nodes/a/gpus/gpu-3b-00"} {
		if _, text := open(t, site, target); !strings.Contains(text, `<a href="https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/causes.md#xid-79" rel="noreferrer">xid-79</a>, 12m`) {
			t.Errorf("%s: no link and age of the taint in %s", target, text)
		}
	}
}

// Objects and commands that a sentence names are links if they have a page.
func TestSentencesHaveLinks(t *testing.T) {
	site := pages(t, &world{World: waitingWorld(t)})
	_, text := open(t, site, "/pods/default/whole")
	for _, part := range []string{`<a href="/claims/default/whole">whole</a>`, `<a href="/nodes/a/gpus/gpu-18-00">gpu-18-00</a>`, `<a href="/nodes/a">a</a>`} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	r := newReading(rows.New(waitingWorld(t).Objects, v1alpha1.DriverName, nil), time.Now())
	for sentence, want := range map[string]string{
		"run kubectl gpu get, then wait": `run <a href="/">kubectl gpu get</a>, then wait`,
		"(kubectl gpu who shows it)":     `(<a href="/claims">kubectl gpu who</a> shows it)`,
		"kubectl gpu explain --limit":    "kubectl gpu explain --limit",
		"kubectl gpu":                    "kubectl gpu",
		"claim none of node a.":          `claim none of node <a href="/nodes/a">a</a>.`,
		"pod other/whole, pod <b>":       "pod other/whole, pod &lt;b&gt;",
		"":                               "",
	} {
		var got strings.Builder
		if err := markup.Render(&got, markup.E("p", r.linked("default", sentence))); err != nil || got.String() != "<p>"+want+"</p>" {
			t.Errorf("%q: got %s, %v", sentence, got.String(), err)
		}
	}
}
