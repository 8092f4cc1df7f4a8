// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// world is a cluster as a [Source]. Each request reads it again.
type world struct {
	*fleettest.World
	refused map[doctor.List]string
	failing atomic.Bool
	// explained counts the requests for warnings.
	explained atomic.Int32
	// unwatched forbids to watch, and changes has an item for each change.
	unwatched bool
	changes   chan struct{}
	uses      rows.Uses
	// agents are the agents of the nodes; nil if they are not known.
	agents map[string]rows.Agent
	// uninspected makes inspections fail.
	uninspected bool
	// mu guards the objects in tests that change them.
	mu sync.Mutex
}

func (w *world) Read(context.Context) (*rows.Cluster, error) {
	if w.failing.Load() {
		return nil, errors.New("list nodes: overloaded")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := w.Objects
	objects.Claims, objects.Slices = copies(objects.Claims), copies(objects.Slices)
	c := rows.New(objects, v1alpha1.DriverName, w.refused)
	c.Agents = w.agents
	return c, nil
}

// copies returns copies of objects, so that tests can change them.
func copies[T interface{ DeepCopy() T }](all []T) []T {
	var copied []T
	for _, o := range all {
		copied = append(copied, o.DeepCopy())
	}
	return copied
}

func (w *world) Warnings(context.Context, *corev1.Pod) ([]corev1.Event, error) {
	w.explained.Add(1)
	return nil, gpu.ErrPermission
}

func (w *world) Watch(ctx context.Context, changed func()) error {
	if w.unwatched {
		return gpu.ErrPermission
	}
	changed()
	for {
		select {
		case <-w.changes:
			changed()
		case <-ctx.Done():
			return nil
		}
	}
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
	s := newSite(w, 0, time.Second)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	s.run(ctx, &running)
	t.Cleanup(func() { stop(); running.Wait() })
	return s.handler()
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
		"/":                         {"<h1>Fleet</h1>", `href="/nodes/dgx"`, "1 with taints", "2 whole, 1 shared, 1 mig, 1 timeslice", `href="/pods">1</a>`},
		"/?q=h100+xid":              {`href="/nodes/dgx"`},
		"/?q=a100":                  {"No node matches the filter."},
		"/nodes/dgx":                {"Topology", "gpu-1b-00", "default/training", `href="/nodes/dgx/gpus/gpu-52-00"`, "60.0Gi of 79.1Gi", "xid-79"},
		"/nodes/dgx/gpus/gpu-52-00": {"GPU gpu-52-00", "productName", "pci0000:4c", `href="/claims/default/notebook-3"`},
		"/nodes/dgx/gpus/gpu-61-00": {"gpu-61-00-mig-1g-10gb-", "default/inference"},
		"/claims":                   {`href="/claims/default/training"`, `href="/nodes/dgx/gpus/gpu-1b-00"`, "waits"},
		"/claims?q=waits":           {"default/late"},
		"/claims/default/training":  {"in use", "gpu-1b-00", "gpu-43-00", `href="/pods/default/training"`},
		"/claims/default/late":      {`href="/claims/default/late/why"`},
		"/claims/default/late/why":  {"Claim default/late", "Request less"},
		"/pods":                     {`href="/pods/default/late"`},
		"/pods/default/late":        {"Pod default/late", `Node <a href="/nodes/dgx">dgx</a>`, "No device is large enough", "What to do", "Request less"},
		"/namespaces":               {"default", "claims?q=default%2F"},
		"/assets/ui.css":            {".skip"},
		"/assets/ui.js":             {"morph"},
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
	for _, target := range []string{"/nodes/other", "/nodes/dgx/gpus/other", "/claims/default/other", "/pods/default/other", "/other", "/assets/other"} {
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
		"/pods/default/training": {`<li><a href="/claims">Claims</a></li>`, "Cause", "Repair, by the administrator of the node", "Containers", ">gpu-1b-00</a>", `⚠ <a href="` + gpu.Page("docs/admin/causes.md")},
		"/pods/default/late":     {`<li><a href="/pods">Waiting</a></li>`, "Other nodes", "does not match"},
	} {
		_, text := open(t, site, target)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
	}
}

func TestAModeHasOneColour(t *testing.T) {
	colours := func(path, pattern string) map[string][]string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string][]string{}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = append(found[match[1]], match[2])
		}
		return found
	}
	lists := colours("assets/ui.css", `--(whole|shared|seat|mig|timeslice): (#\w+)`)
	seen := map[string]string{}
	for _, mode := range fleet.Modes()[1:] {
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
	for _, target := range []string{"/", "/?q=%3Cscript%3E", "/findings", "/claims?sort=%22%3E%3Cscript%3E", "/pods?sort=-age&q=%3Cscript%3E", "/nodes/a", "/nodes/a/gpus/gpu-18-00", "/claims", "/claims/default/waits", "/claims/default/waits/why", "/pods", "/namespaces", "/nodes/%3Cscript%3Ealert(1)"} {
		_, text := open(t, site, target)
		if strings.Contains(text, "<script>") || strings.Contains(text, "<img") || strings.Contains(text, `""><`) {
			t.Errorf("%s: %s", target, text)
		}
	}
}

// A list of many nodes is shown in parts.
func TestPagesOfManyNodes(t *testing.T) {
	w := fleettest.New(t, "node-0=t4 share")
	w.Hold("node-0", "held", "")
	w.Repeat(120)
	site := pages(t, &world{World: w})
	_, text := open(t, site, "/?page=2")
	for _, want := range []string{"Nodes 51 to 100 of 120", "?page=1", "?page=3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if rows := strings.Count(text, "<tr"); rows != 51 {
		t.Errorf("%d rows", rows)
	}
	for _, number := range []string{"-1", "x", "99999999999999999999", "99"} {
		if status, _ := open(t, site, "/claims?page="+number); status != http.StatusOK {
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
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.run(ctx) })

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
		stop()
		running.Wait()
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
			if e, err := s.explain(t.Context(), r, "default", "pod/new"); err != nil || len(e.Misses) != 1 {
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
	source := &world{World: w}
	q := rows.Question{Namespace: "default", Name: "pod/new", Nodes: nodesExplained, Limit: 1}
	e, err := r.explain(t.Context(), q, source.Warnings)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(source, 0, 0)
	q.Limit = pageLimit
	s.answers[q] = answer{e, nil, time.Now().Add(time.Hour)}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods/default/new", nil)
	request.SetPathValue("namespace", "default")
	request.SetPathValue("name", "new")
	p, err := s.podPage(t.Context(), r, request)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := markup.Render(&text, markup.E("main", p.main)); err != nil || !strings.Contains(text.String(), "Not examined: a.") {
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
		if _, err := fleetPage(b.Context(), r, q); err != nil {
			b.Fatal(err)
		}
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
