// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// world is a cluster as a [Source]. Each request reads it again.
type world struct {
	*fleettest.World
	refused map[doctor.List]string
	failing atomic.Bool
	// explained counts the requests for warnings.
	explained atomic.Int32
	uses      rows.Uses
	// agents are the agents of the nodes; nil if they are not known.
	agents map[string]rows.Agent
	// uninspected makes inspections fail.
	uninspected bool
}

func (w *world) Read(context.Context) (*rows.Cluster, error) {
	if w.failing.Load() {
		return nil, errors.New("list nodes: overloaded")
	}
	c := rows.New(w.Objects, v1alpha1.DriverName, w.refused)
	c.Agents = w.agents
	return c, nil
}

func (w *world) Warnings(context.Context, *corev1.Pod) ([]corev1.Event, error) {
	w.explained.Add(1)
	return nil, gpu.ErrPermission
}

func (w *world) Inspect(_ context.Context, c *rows.Cluster) (Inspection, error) {
	if w.uninspected {
		return Inspection{}, errors.New("list policies: overloaded")
	}
	return Inspection{Findings: doctor.Examine(&doctor.Cluster{Objects: c.Objects, Driver: c.Driver, Now: time.Now(), Unread: c.Refused}), Uses: w.uses}, nil
}

// pages returns the pages of a cluster.
func pages(t *testing.T, w *world) http.Handler {
	t.Helper()
	return newSite(w, 0, time.Second).handler()
}

func shared(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "whole", "")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	return w
}

// open returns the status and the text of a page.
func open(t *testing.T, site http.Handler, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	site.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	_, main, found := strings.Cut(w.Body.String(), "<main")
	if !found {
		main = w.Body.String()
	}
	return w.Code, main
}

func TestPages(t *testing.T) {
	w := busy(t)
	pod := fleettest.Pod("late")
	pod.Status.Phase = corev1.PodPending
	w.Pods = append(w.Pods, pod)
	w.Claims = append(w.Claims, fleettest.Claim("late", "class=mps.nvidia.com memory=100Gi"))
	site := pages(t, &world{World: w})
	for target, want := range map[string][]string{
		"/":                        {"<h1>Fleet</h1>", `href="/nodes/dgx?q=gpu-52-00"`, "<dt>With taints</dt><dd>1</dd>", "<dt>Free</dt><dd>3</dd>", `href="/pods">1</a>`, `<span class="mode timeslice">timeslice</span>`},
		"/?q=h100+xid":             {`data-key="dgx/gpu-d1-00"`},
		"/?q=a100":                 {"No node publishes a GPU like this."},
		"/nodes/dgx":               {"Topology", "gpu-1b-00", "60.0Gi/79.1Gi", "xid-79", ">1/7 slices<", `href="/claims/default/training"`, "NODE: one NUMA node"},
		"/nodes/dgx?q=gpu-61-00":   {"gpu-61-00-mig-1g-10gb-", "inference"},
		"/holders":                 {`href="/claims/default/training"`, `href="/nodes/dgx?q=gpu-1b-00"`, `href="/pods/default/training"`, `href="/holders?q=default"`},
		"/claims/default/training": {"claim default/training", "claim training has gpu-1b-00 of node dgx", `href="/pods/default/training"`},
		"/claims/default/late":     {"claim default/late", "request less"},
		"/pods":                    {`href="/pods/default/late"`},
		"/pods/default/late":       {"pod default/late: Pending", "Node dgx: no device is large enough", "What to do", "request less"},
		"/namespaces":              {`href="/holders?q=default"`, "TOTAL"},
		"/assets/ui.css":           {".skip"},
		"/assets/ui.js":            {"morph"},
	} {
		t.Run(target, func(t *testing.T) {
			status, text := open(t, site, target)
			if status != http.StatusOK {
				t.Errorf("status %d", status)
			}
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in %s", part, text)
				}
			}
		})
	}
	for _, target := range []string{"/nodes/other", "/claims/default/other", "/pods/default/other", "/other", "/assets/other"} {
		if status, _ := open(t, site, target); status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", target, status)
		}
	}
}

func TestThePageOfAPodHasTheSectionsOfExplain(t *testing.T) {
	w := busy(t)
	w.Taint("gpu-1b-00", "xid-79")
	for _, pod := range w.Pods {
		pod.Spec.NodeName, pod.Status.Phase = "dgx", corev1.PodRunning
	}
	late := fleettest.Pod("late")
	late.Status.Phase = corev1.PodPending
	late.Spec.NodeSelector = map[string]string{"disk": "fast"}
	w.Pods, w.Claims = append(w.Pods, late), append(w.Claims, fleettest.Claim("late", ""))
	site := pages(t, &world{World: w})
	for target, want := range map[string][]string{
		"/pods/default/training": {`<li><a href="/holders">Holders</a></li>`, "gpu-1b-00 of node dgx has failed", "Repair, by the administrator of the node", "Containers", `class="tainted">⚠ <a href="` + gpu.Page("docs/admin/causes.md")},
		"/pods/default/late":     {`<li><a href="/pods">Waiting</a></li>`, "Not on dgx", "does not match"},
	} {
		_, text := open(t, site, target)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
	}
}

func TestThePageOfAClaimHasItsOwnDevices(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.HoldForGroup("a", "one", "")
	w.HoldForGroup("a", "other", "")
	_, text := open(t, pages(t, &world{World: w}), "/claims/default/one")
	if !strings.Contains(text, ">gpu-18-00</a>") || strings.Contains(text, "gpu-3b-00") {
		t.Errorf("got %s", text)
	}
}

func TestAModeHasOneColour(t *testing.T) {
	colours := func(path, pattern string) map[string][]string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found := map[string][]string{}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = append(found[match[1]], match[2])
		}
		return found
	}
	lists := colours("assets/ui.css", `--(whole|shared|seat|mig|timeslice): (#\w+)`)
	seen := map[string]string{}
	modes := []fleet.Mode{fleet.ModeWhole, fleet.ModeShared}
	for _, k := range kind.All() {
		if k.DividesGPU() {
			modes = append(modes, fleet.Mode(k))
		}
	}
	for _, mode := range modes {
		all := lists[string(mode)]
		if len(all) != 2 || seen[all[0]] != "" || seen[all[1]] != "" {
			t.Fatalf("mode %s has the colours %q, of a light and a dark page, and others have %v", mode, all, seen)
		}
		seen[all[0]], seen[all[1]] = string(mode), string(mode)
	}
}

// Claims of a hostile tenant and attributes of a hostile driver stay text.
func TestPagesOfHostileNames(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	hostile := `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	w.Hold("a", "held", "")
	w.Claims[0].Name = hostile
	pod := fleettest.Pod(hostile)
	pod.Status.Phase, pod.Status.Conditions = corev1.PodPending, []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: hostile}}
	w.Pods = append(w.Pods, pod)
	w.Claims = append(w.Claims, fleettest.Claim("waits", "cel="+hostile))
	w.Taint("gpu-3b-00", hostile)
	w.Claims[0].Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: v1alpha1.DriverName, Pool: "a", Device: "gpu-18-00",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionForeignProcess, Status: metav1.ConditionTrue, Message: hostile}, {Type: "Ready", Status: metav1.ConditionFalse, Reason: "Hostile", Message: hostile}},
	}}
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			name := slice.Spec.Devices[i].Attributes[v1alpha1.AttributeProductName]
			name.StringValue = &hostile
			slice.Spec.Devices[i].Attributes[v1alpha1.AttributeProductName] = name
		}
	}
	site := pages(t, &world{World: w})
	if text := inspected(t, site, "/findings", "is not prepared"); !strings.Contains(text, "&lt;script&gt;") {
		t.Errorf("the message is not in %s", text)
	}
	for _, target := range []string{"/", "/?q=%3Cscript%3E", "/findings", "/holders?sort=%22%3E%3Cscript%3E", "/pods?sort=-pod&q=%3Cscript%3E", "/nodes/a", "/nodes/a?q=%3Cscript%3E", "/holders", "/claims/default/waits", "/pods/default/" + url.PathEscape(hostile), "/pods", "/namespaces", "/nodes/%3Cscript%3Ealert(1)"} {
		_, text := open(t, site, target)
		if strings.Contains(text, "<script>") || strings.Contains(text, "<img") || strings.Contains(text, `""><`) {
			t.Errorf("%s: %s", target, text)
		}
	}
}

// A table of many rows is shown in parts, and ordered as a whole.
func TestPagesOfManyNodes(t *testing.T) {
	w := fleettest.New(t, "node-0=t4 share")
	w.Hold("node-0", "held", "")
	w.Repeat(120)
	site := pages(t, &world{World: w})
	_, text := open(t, site, "/?page=2&sort=-node")
	for _, want := range []string{"GPUs 51 to 100 of 480", "?page=1", "?page=3&amp;sort=-node", `data-key="node-87/gpu-86-00"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if rows := strings.Count(text, "<tr"); rows != 51 {
		t.Errorf("%d rows", rows)
	}
	for _, number := range []string{"-1", "x", "99999999999999999999", "99"} {
		if status, _ := open(t, site, "/holders?page="+number); status != http.StatusOK {
			t.Errorf("page %s: status %d", number, status)
		}
	}
}

// The pages say what the user may not read. Without the classes, each class would seem to be
// missing.
func TestPagesWithoutRights(t *testing.T) {
	w := &world{World: shared(t), refused: map[doctor.List]string{doctor.Pods: "no right to list pods", doctor.Classes: "no right to list classes"}}
	site := pages(t, w)
	status, text := open(t, site, "/")
	if status != http.StatusOK || !strings.Contains(text, "no right to list pods") {
		t.Errorf("status %d: %s", status, text)
	}
	status, text = open(t, site, "/pods/default/half")
	if status != http.StatusForbidden || !strings.Contains(text, "permission denied: list deviceclasses") {
		t.Errorf("status %d: %s", status, text)
	}
	w.failing.Store(true)
	status, text = open(t, pages(t, w), "/")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "overloaded") {
		t.Errorf("status %d: %s", status, text)
	}
}

// A page shows the last reading and its time if the API server fails.
func TestPagesAfterAFailure(t *testing.T) {
	w := &world{World: shared(t)}
	site := pages(t, w)
	open(t, site, "/")
	w.failing.Store(true)
	text := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(text, "failed") && time.Now().Before(deadline); {
		_, text = open(t, site, "/nodes/a")
	}
	for _, want := range []string{"The last reading of the cluster failed: list nodes", "overloaded", "gpu-18-00"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

func TestReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		takes := 10 * time.Second
		r := newReadings(func(ctx context.Context) (*rows.Cluster, error) {
			begun.Add(1)
			select {
			case <-time.After(takes):
				return rows.New(fleettest.New(t).Objects, v1alpha1.DriverName, nil), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, time.Second)
		ctx := t.Context()
		// Pages of many tabs wait for one reading.
		var tabs sync.WaitGroup
		for range 20 {
			tabs.Go(func() {
				if found, err := r.get(ctx); found == nil || err != nil {
					t.Errorf("got %v, %v", found, err)
				}
			})
		}
		tabs.Wait()
		if n := begun.Load(); n != 1 {
			t.Errorf("%d readings for 20 tabs", n)
		}
		// A slow API server is left alone for a while.
		first, _ := r.get(ctx)
		time.Sleep(30 * time.Second) //nolint:forbidigo // the clock of the test's bubble
		if again, _ := r.get(ctx); again != first || begun.Load() != 1 {
			t.Errorf("%d readings after 30 s", begun.Load())
		}
		// Later, a page shows the older reading if the new one takes long.
		time.Sleep(20 * time.Second) //nolint:forbidigo // the clock of the test's bubble
		begin := time.Now()
		if again, _ := r.get(ctx); again != first || time.Since(begin) != patience || begun.Load() != 2 {
			t.Errorf("a page waits for %s, %d readings", time.Since(begin), begun.Load())
		}
		time.Sleep(takes) //nolint:forbidigo // the clock of the test's bubble
		if again, _ := r.get(ctx); again == first {
			t.Error("the new reading is not used")
		}
		// A reading without an end fails, and the last one stays.
		takes = time.Hour
		time.Sleep(time.Hour) //nolint:forbidigo // the clock of the test's bubble
		if found, _ := r.get(ctx); found == nil {
			t.Error("no reading")
		}
		time.Sleep(readTimeout) //nolint:forbidigo // the clock of the test's bubble
		if found, err := r.get(ctx); found == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", found, err)
		}
	})
}

// Explanations take a processor each, so they are made one at a time and once for a reading.
func TestExplanationsAreShared(t *testing.T) {
	w := shared(t)
	pod := fleettest.Pod("new")
	w.Pods, w.Claims = append(w.Pods, pod), append(w.Claims, fleettest.Claim("new", "count=9"))
	source := &world{World: w}
	s := newSite(source, time.Hour, time.Second)
	r := newReading(rows.New(w.Objects, v1alpha1.DriverName, nil), time.Now())
	var tabs sync.WaitGroup
	for range 10 {
		tabs.Go(func() {
			question := rows.Question{Namespace: "default", Name: "pod/new", Nodes: nodesExplained, Limit: pageLimit}
			if e, err := s.explained(t.Context(), r, question, true, 1); err != nil || len(e.Misses) != 1 {
				t.Errorf("got %+v, %v", e, err)
			}
		})
	}
	tabs.Wait()
	if n := source.explained.Load(); n != 1 {
		t.Errorf("%d explanations for 10 tabs", n)
	}
}

func TestThePageOfAPodNamesUnexaminedNodes(t *testing.T) {
	w := shared(t)
	w.Pods, w.Claims = append(w.Pods, fleettest.Pod("new")), append(w.Claims, fleettest.Claim("new", "count=9"))
	r := newReading(rows.New(w.Objects, v1alpha1.DriverName, nil), time.Now())
	s := newSite(&world{World: w}, 0, 0)
	q := rows.Question{Namespace: "default", Name: "pod/new", Nodes: nodesExplained, Limit: 1}
	e, err := s.explain(t.Context(), r, q, true)
	require.NoError(t, err)
	q.Limit = pageLimit
	s.answers[q] = answer{e, nil, time.Now().Add(time.Hour)}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods/default/new", nil)
	request.SetPathValue("namespace", "default")
	request.SetPathValue("name", "new")
	p, err := s.explanationPage("pod/")(t.Context(), r, request)
	require.NoError(t, err)
	var text strings.Builder
	if err := markup.Render(&text, markup.E("main", p.main)); err != nil || !strings.Contains(text.String(), "Not examined (--limit): a<") {
		t.Errorf("got %s, %v", text.String(), err)
	}
}

func BenchmarkFleetPage(b *testing.B) {
	w := fleettest.New(b, "node-0=dgx-h100 share")
	w.Hold("node-0", "all", "count=8")
	w.Repeat(1000)
	r := newReading(rows.New(w.Objects, v1alpha1.DriverName, nil), time.Now())
	q := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/?q=node-99", nil)
	for b.Loop() {
		_, err := fleetPage(b.Context(), r, q)
		require.NoError(b, err)
	}
}

// busy returns a cluster of one node whose GPUs are used in all ways.
func busy(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "dgx=dgx-h100 share.mig.timeslice")
	w.Hold("dgx", "training", "count=2")
	for i, memory := range []string{"30Gi", "10Gi", "10Gi", "5Gi", "5Gi"} {
		w.Hold("dgx", fmt.Sprintf("notebook-%d", i), "class=mps.nvidia.com compute=10 memory="+memory)
	}
	w.Hold("dgx", "inference", "class=mig-1g.10gb")
	w.Hold("dgx", "batch", "class=timeslice.nvidia.com")
	w.Taint("gpu-d1-00", "xid-79")
	return w
}

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
	require.Same(t, "pods", want, keys(text))
	for _, part := range []string{">2d2h<", ">120m<", ">60s<", "nearest to fit is node a: no device is large enough", "request less"} {
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

func TestTablesAreOrderedByTheAddress(t *testing.T) {
	site := pages(t, &world{World: waitingWorld(t)})
	for target, want := range map[string]struct {
		keys  []string
		state string
	}{
		"/pods?sort=pod":         {[]string{"default/middle", "default/newest", "default/oldest"}, `aria-sort="ascending"><a href="?sort=-pod">`},
		"/pods?sort=-pod":        {[]string{"default/oldest", "default/newest", "default/middle"}, `aria-sort="descending"><a href="?sort=pod">`},
		"/pods?sort=x&q=middle":  {[]string{"default/middle"}, `<a href="?q=middle&amp;sort=pod">`},
		"/holders?sort=-compute": {[]string{"default/whole/main/whole/a/gpu-18-00", "default/half/main/half/a/gpu-3b-00"}, `name="sort" value="-compute"`},
	} {
		_, text := open(t, site, target)
		require.Same(t, target, want.keys, keys(text))
		if !strings.Contains(text, want.state) {
			t.Errorf("%s: no %s in %s", target, want.state, text)
		}
	}
}

func TestTaintsHaveLinksAndAges(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-3b-00", "xid-79")
	w.SetTaintTimes(ago(12 * time.Minute))
	site := pages(t, &world{World: w})
	for _, target := range []string{"/", "/nodes/a"} {
		if _, text := open(t, site, target); !strings.Contains(text, `<a href="https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/causes.md#xid-79" rel="noreferrer">xid-79, 12m</a>`) {
			t.Errorf("%s: no link and age of the taint in %s", target, text)
		}
	}
}

// A page says of a GPU without its agent what the commands say, and never that it is ok or free.
func TestAGPUWithoutItsAgentIsNotOK(t *testing.T) {
	w := shared(t)
	for i, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning} {
		w.Pods[i].Spec.NodeName, w.Pods[i].Status.Phase = "a", phase
	}
	since := metav1.NewTime(time.Now().Add(-100*time.Hour - 30*time.Minute))
	site := pages(t, &world{World: w, agents: map[string]rows.Agent{
		"a": {Problem: rows.Reason{Code: rows.CodeAgentNotReady, Since: &since}},
		// A node that should have GPUs.
		"b": {Problem: rows.Reason{Code: rows.CodeNoAgent}},
	}})
	const unknown = `docs/admin/findings.md#agent-not-ready" rel="noreferrer">unknown: agent not ready since 4d4h ago`
	for target, want := range map[string][]string{
		"/":                    {unknown, `#node-without-agent" rel="noreferrer">not published: no agent</a>`, "<dt>Health unknown</dt><dd>5</dd>", "<dt>Free</dt><dd>0</dd>"},
		"/?q=not+published":    {`data-key="b"`},
		"/nodes/a":             {unknown, `<span class="mode unknown">unknown</span>`},
		"/nodes/b":             {"not published: no agent", `data-label="MEMORY"><div>-</div>`, `data-label="COMPUTE"><div>-</div>`},
		"/claims/default/half": {unknown, `data-label="LIMITED BY"`, "no agent is ready on node a"},
		"/pods/default/half":   {"no agent is ready on node a"},
		"/pods":                {"no agent is ready on node a"},
	} {
		_, text := open(t, site, target)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
		if strings.Contains(text, `class="ok"`) {
			t.Errorf("%s: a GPU is ok in %s", target, text)
		}
	}
}

// inspected opens a page until it has the text.
func inspected(t *testing.T, site http.Handler, target, want string) string {
	t.Helper()
	text := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(text, want); {
		if _, text = open(t, site, target); time.Now().After(end) {
			t.Fatalf("%s: no %q in %s", target, want, text)
		}
	}
	return text
}

func TestFindings(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-3b-00", "xid-79")
	site := pages(t, &world{World: w})
	text := inspected(t, site, "/findings", "xid-79")
	for _, want := range []string{
		`class="badge problem"`, `docs/admin/causes.md#xid-79" rel="noreferrer">xid-79</a>`, `<a href="/nodes/a">node a</a>`, "restart the node", "fallen off the bus",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, `class="badge ok"`) {
		t.Error("findings that are ok are listed unasked")
	}
	// Each page has their number in its navigation.
	answer := httptest.NewRecorder()
	site.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/holders", nil))
	if !strings.Contains(answer.Body.String(), `Findings <span class="number problem">`) {
		t.Errorf("no number in %s", answer.Body)
	}
}

func TestAnInspectionThatFails(t *testing.T) {
	w := &world{World: shared(t), uninspected: true}
	if status, text := open(t, pages(t, w), "/findings"); status != http.StatusInternalServerError || !strings.Contains(text, "inspect the cluster: list policies: overloaded") {
		t.Errorf("status %d: %s", status, text)
	}
}

func TestPagesHaveTheUseThatAgentsReport(t *testing.T) {
	memory, half := uint64(3<<30), 0.5
	site := pages(t, &world{World: shared(t), uses: rows.Uses{"a": {Rows: []agentv1.Row{
		{Labels: agentv1.Labels{Namespace: "default", Claim: "half", Device: "gpu-3b-00", Pod: "half", Container: "main"}, MemoryUsedBytes: &memory, SMUsed: &half},
	}, Foreign: &agentv1.Foreign{Checked: time.Now().Add(-100 * time.Hour), Devices: []agentv1.ForeignDevice{{Device: "gpu-3b-00", Processes: 2, MemoryUsedBytes: &memory}}}}}})
	for target, want := range map[string][]string{
		"/":                         {">3.0Gi<", ">50%<", ">2 processes, 3.0Gi, 4d4h ago<"},
		"/nodes/a":                  {`data-label="USED"><div>3.0Gi<`, `data-label="SM USED"><div>50%<`},
		"/claims/default/half":      {`data-label="SM USED"><div>50%<`},
		"/namespaces":               {`data-label="USED"><div>3.0Gi<`},
		"/namespaces?sort=-sm-used": {`aria-sort="descending"><a href="?sort=sm-used">`},
	} {
		text := inspected(t, site, target, want[0])
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
	}
	if _, text := open(t, pages(t, &world{World: shared(t)}), "/nodes/a"); strings.Contains(text, "SM USED") {
		t.Error("columns about a use that no agent reports")
	}
}

func TestForeignProcesses(t *testing.T) {
	w := shared(t)
	claim := w.Claims[1]
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: v1alpha1.DriverName, Pool: "a", Device: "gpu-3b-00",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionForeignProcess, Status: metav1.ConditionTrue, Message: "pod other/<b>thief</b> computes"}},
	}}
	w.AddTaint("gpu-3b-00", resourceapi.DeviceTaint{Key: v1alpha1.TaintInUse, Value: v1alpha1.InUseTaintForeignProcess, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	site := pages(t, &world{World: w})
	for target, want := range map[string]string{
		"/":                    `docs/admin/causes.md#foreign-process" rel="noreferrer">foreign-process`,
		"/?q=foreign-process":  `data-key="a/gpu-3b-00"`,
		"/claims/default/half": "pod other/&lt;b&gt;thief&lt;/b&gt; computes",
	} {
		if _, text := open(t, site, target); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", target, want, text)
		}
	}
}
