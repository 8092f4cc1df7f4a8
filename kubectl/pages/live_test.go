// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// news returns the data of the events in the stream of a page.
func news(t *testing.T, site http.Handler) <-chan string {
	t.Helper()
	server := httptest.NewServer(site)
	ctx, stop := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/news", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the stream is %s", kind)
	}
	events := make(chan string, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				events <- data
			}
		}
	})
	t.Cleanup(func() {
		stop()
		reading.Wait()
		_ = answer.Body.Close()
		server.Close()
	})
	return events
}

// await waits for an event with the data.
func await(t *testing.T, events <-chan string, want string) {
	t.Helper()
	for {
		select {
		case got := <-events:
			if got == want {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %q", want)
		}
	}
}

// A page gets news when the cluster changes, and finds the change in the next reading.
func TestAnOpenPageGetsNewsOfChanges(t *testing.T) {
	w := &world{World: shared(t), changes: make(chan struct{})}
	site := pages(t, w)
	events := news(t, site)
	await(t, events, "watch")
	open(t, site, "/claims")
	w.mu.Lock()
	w.Claims[0].Name = "renamed"
	w.mu.Unlock()
	w.changes <- struct{}{}
	for text := ""; !strings.Contains(text, "default/renamed"); {
		await(t, events, "watch")
		_, text = open(t, site, "/claims")
	}
}

func TestAPageOfAClusterThatIsNotWatched(t *testing.T) {
	w := &world{World: shared(t), unwatched: true}
	site := pages(t, w)
	events := news(t, site)
	for range 3 {
		await(t, events, "refresh")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	l := newLive()
	for range mostStreams {
		if !l.enter() {
			t.Fatal("a stream is refused")
		}
	}
	s := newSite(&world{World: shared(t)}, 0, time.Second)
	s.live = l
	answer := httptest.NewRecorder()
	s.stream(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/news", nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", answer.Code)
	}
	l.leave()
	if !l.enter() {
		t.Error("a stream is refused after another one has ended")
	}
}

// A change during a reading is in the next one, and readings keep their pause.
func TestAChangeDuringAReadingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		p := newPoll(func(context.Context) (*int32, error) {
			n := begun.Add(1)
			time.Sleep(time.Second) //nolint:forbidigo // the clock of the test's bubble
			return &n, nil
		}, time.Hour, idleRatio)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx) })
		p.request()
		synctest.Wait()
		begin := time.Now()
		p.renew(ctx)
		if n, _ := p.peek(); *n != 2 {
			t.Errorf("reading %d", *n)
		}
		p.renew(ctx)
		if took := time.Since(begin); begun.Load() != 3 || took < 3*time.Second+idleRatio*time.Second {
			t.Errorf("%d readings in %s", begun.Load(), took)
		}
		stop()
		running.Wait()
	})
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
		`class="badge problem"`, `docs/admin/causes.md#xid-79" rel="noreferrer">xid-79</a>`, `<a href="/nodes/a">a</a>`, "restart the node", `<a href="/findings?state=warning">`, "fallen off the bus",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, `class="badge ok"`) {
		t.Error("findings that are ok are listed unasked")
	}
	if _, text := open(t, site, "/findings?state=ok"); !strings.Contains(text, `class="badge ok"`) || strings.Contains(text, `class="badge problem"`) {
		t.Errorf("got %s", text)
	}
	// Each page has their number in its navigation.
	answer := httptest.NewRecorder()
	site.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/claims", nil))
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
		"/":                         {"3.0Gi of 58.3Gi", "12%"}, // a half of one of four GPUs
		"/nodes/a":                  {"3.0Gi of 14.6Gi", "50%", `data-label="Memory used"><div>3.0Gi<`},
		"/nodes/a/gpus/gpu-3b-00":   {"<dt>SM used</dt>", "<dt>Processes without a claim</dt><dd>2 processes, 3.0Gi, 4d4h ago</dd>"},
		"/claims/default/half":      {`data-label="SM used"><div>50%<`},
		"/namespaces":               {`data-label="Memory used"><div>3.0Gi<`},
		"/namespaces?sort=-sm-used": {`aria-sort="descending"><a href="?sort=sm-used">`},
	} {
		text := inspected(t, site, target, want[0])
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %s", target, part, text)
			}
		}
	}
	if _, text := open(t, pages(t, &world{World: shared(t)}), "/nodes/a"); strings.Contains(text, "SM used") {
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
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; d.Name == "gpu-3b-00" {
				d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: v1alpha1.TaintInUse, Value: v1alpha1.InUseTaintForeignProcess, Effect: resourceapi.DeviceTaintEffectNoSchedule})
			}
		}
	}
	site := pages(t, &world{World: w})
	for target, want := range map[string]string{
		"/":                       `GPUs with foreign processes</dt><dd><span class="count warning"><a href="/?q=foreign-process">1</a>`,
		"/?q=foreign-process":     `data-key="a"`,
		"/claims?q=foreign":       "⚠ foreign process",
		"/claims/default/half":    "pod other/&lt;b&gt;thief&lt;/b&gt; computes",
		"/nodes/a/gpus/gpu-3b-00": "Foreign processes</h2>",
	} {
		if _, text := open(t, site, target); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", target, want, text)
		}
	}
	if _, text := open(t, site, "/nodes/a/gpus/gpu-18-00"); strings.Contains(text, "Foreign processes") {
		t.Error("another GPU has the process")
	}
}
