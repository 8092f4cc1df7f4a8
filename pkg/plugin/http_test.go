// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestReadyzListsFailedChecks(t *testing.T) {
	var registered error
	checks := []Check{
		{Name: "gpus", Err: func() error { return nil }},
		{Name: "registered", Err: func() error { return registered }},
	}
	handler := Handler(testMetrics(), State{}, checks[:1], checks)
	get := func(path string) (int, string) {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return recorder.Code, recorder.Body.String()
	}
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok      gpus\nok      registered\n" {
		t.Errorf("/readyz = %d %q", code, body)
	}
	registered = errors.New("the kubelet has not registered this plugin yet")
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable ||
		body != "ok      gpus\nnot ok  registered: the kubelet has not registered this plugin yet\n" {
		t.Errorf("/readyz = %d %q", code, body)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d, want 200: not ready is not dead", code)
	}
}

func TestAProbeAnswersWhileChecksHang(t *testing.T) {
	release := make(chan struct{})
	var runs atomic.Int32
	hangs := func() error { runs.Add(1); <-release; return nil }
	p := newProbe([]Check{
		{Name: "gpus", Err: hangs},
		{Name: "serving", Err: func() error { return nil }},
		{Name: "folders", Err: hangs},
	}, 200*time.Millisecond)
	get := func() (int, string) {
		recorder := httptest.NewRecorder()
		p.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
		return recorder.Code, regexp.MustCompile(`[0-9]+s`).ReplaceAllString(recorder.Body.String(), "Ns")
	}
	const want = "not ok  gpus: no answer for Ns\nok      serving\nnot ok  folders: no answer for Ns\n"
	for range 3 {
		if code, body := get(); code != http.StatusServiceUnavailable || body != want {
			t.Errorf("/healthz = %d %q, want %q", code, body, want)
		}
	}
	close(release)
	p.patience = time.Minute
	if code, body := get(); code != http.StatusOK {
		t.Errorf("/healthz = %d %q once nothing hangs", code, body)
	}
	if n := runs.Load(); n > 4 {
		t.Errorf("%d runs of checks that hang, want one of each at a time", n)
	}
}

func TestMetricsHaveConventionalNamesAndTheDriversPrefix(t *testing.T) {
	metrics := NewMetrics()
	state := State{
		ClaimsHeld:    func() int { return 3 },
		Devices:       func() map[string]int { return map[string]int{"healthy": 7, "unhealthy": 1} },
		ConfigProblem: func() bool { return true },
		Phases:        func() map[string]int { return map[string]int{"NoDriver": 0, "Published": 1} },
		Containers: func() []ContainerMemory {
			c := ContainerMemory{Claim: claim.Ref{Namespace: "team-a", Name: "share"}, Device: "gpu-1b-00", PodUID: "p", ContainerID: "c"}
			unlimited := c
			c.LimitBytes, c.UsedBytes = 10<<30, 3<<30
			unlimited.ContainerID, unlimited.LimitBytes = "unlimited", gpu.NoMemoryLimit
			return []ContainerMemory{c, unlimited}
		},
	}
	newStatusWriter(nil, testDriver, metrics).Set(&claimStatus{})
	metrics.prepare.WithLabelValues("gpu", outcomeOK).Observe(.0017)
	metrics.unprepare.WithLabelValues(outcomeOK).Observe(.001)
	recorder := httptest.NewRecorder()
	Handler(metrics, state, nil, nil).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text := recorder.Body.String()
	for _, want := range []string{
		`gpu_dra_claims_held 3`,
		`gpu_dra_devices{state="healthy"} 7`,
		`gpu_dra_devices{state="unhealthy"} 1`,
		`gpu_dra_node_config_problem 1`,
		`gpu_dra_node_phase{phase="NoDriver"} 0`,
		`gpu_dra_node_phase{phase="Published"} 1`,
		`gpu_dra_container_memory_limit_bytes{claim="share",container_id="c",device="gpu-1b-00",namespace="team-a",pod_uid="p"} 1.073741824e+10`,
		`gpu_dra_container_memory_used_bytes{claim="share",container_id="c",device="gpu-1b-00",namespace="team-a",pod_uid="p"} 3.221225472e+09`,
		`gpu_dra_status_queue_depth 1`,
		`gpu_dra_prepare_duration_seconds_bucket{kind="gpu",outcome="ok",le="0.0015"} 0`,
		`gpu_dra_prepare_duration_seconds_bucket{kind="gpu",outcome="ok",le="0.002"} 1`,
		`gpu_dra_unprepare_duration_seconds_count{outcome="ok"} 1`,
		`gpu_dra_build_info{`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, "unlimited") {
		t.Error("/metrics has the memory of a container without a limit, which the driver does not count")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, namespace) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
