// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"k8s.io/apimachinery/pkg/api/resource"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestReadyzListsFailedChecks(t *testing.T) {
	var registered error
	checks := []Check{
		{Name: "gpus", Err: func() error { return nil }},
		{Name: "registered", Err: func() error { return registered }},
	}
	handler := Handler(NewMetrics(nil), State{}, checks[:1], checks)
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
	metrics := NewMetrics([]string{"AlreadyInUse"})
	state := State{
		ClaimsHeld:    func() (int, error) { return 3, nil },
		SeesPods:      func() bool { return true },
		Devices:       func() map[string]int { return map[string]int{"healthy": 7, "unhealthy": 1} },
		ConfigProblem: func() bool { return true },
		Phases:        func() map[string]int { return map[string]int{"NoDriver": 0, "Published": 1} },
		Usage: func() agentv1.Report {
			labels := agentv1.Labels{Namespace: "team-a", Claim: "share", Device: "gpu-1b-00", UUID: "GPU-1", Enforcement: "driver"}
			ofContainer := labels
			ofContainer.Pod, ofContainer.Container = "trainer", "main"
			return agentv1.Report{Omitted: 2, Rows: []agentv1.Row{
				{Labels: labels, MemoryPromisedBytes: new(uint64(20 << 30)), ComputePromised: new(.25), Healthy: new(false)},
				{Labels: ofContainer, MemoryUsedBytes: new(uint64(3 << 30)), MemoryLimitBytes: new(uint64(10 << 30)), SMUsed: new(.5)},
			}}
		},
		ShareSeconds: func() map[usage.Account]float64 {
			return map[usage.Account]float64{{Namespace: "team-a", Class: "mps.nvidia.com"}: 12.5}
		},
		Power: func() Power {
			return Power{
				Joules: map[usage.Account]float64{{Namespace: "team-a", Class: "mps.nvidia.com"}: 4200},
				GPUs:   []GPUClocks{{Device: "gpu-1b-00", UUID: "GPU-1", Limited: map[string]bool{"hw-thermal-slowdown": true, "sw-power-cap": false}}},
			}
		},
		GPUs: func() []GPUHealth {
			used := gpu.Gauges{Utilization: new(.25), MemoryUsedBytes: new(uint64(3 << 30)), MemoryBytes: new(uint64(80 << 30)), Celsius: new(61.), Watts: new(420.5)}
			stranded := &catalog.Stranded{Memory: resource.MustParse("10Gi"), Slices: 1}
			return []GPUHealth{{Device: "gpu-1b-00", UUID: "GPU-1", Cause: "xid-79"}, {Device: "gpu-43-00", UUID: "GPU-2", Gauges: used, Stranded: stranded}}
		},
	}
	metrics.StatusQueue(1)
	metrics.HeldBack(2)
	metrics.OtherDrivers(3)
	metrics.ForeignDevices(4)
	metrics.StatusWritten("dropped")
	metrics.PublishFailed("Forbidden")
	for i := range 300 {
		metrics.ProgramFault(31, "own", fmt.Sprint("team-", i))
	}
	metrics.ProgramFault(31, "own", "team-0")
	metrics.Prepared("gpu", 1700*time.Microsecond, "")
	metrics.Prepared("mig", time.Second, "Invalid")
	metrics.Unprepared(time.Millisecond, nil)
	metrics.Unprepared(time.Millisecond, errors.New("the GPU is lost"))
	for _, device := range []string{"gpu-43-00", "gpu-1b-00"} {
		metrics.ForeignProcesses(map[string]int{device: 5})
		metrics.UnlimitedContainers(map[string]int{device: 6})
	}
	metrics.DisturbedShares(map[string]int{"mps-interrupted": 7})
	recorder := httptest.NewRecorder()
	Handler(metrics, state, nil, nil).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text := recorder.Body.String()
	for _, want := range []string{
		`gpu_dra_program_faults_total{cause="own",namespace="team-0",xid="31"} 2`,
		`gpu_dra_program_faults_total{cause="own",namespace="",xid="31"} 100`,
		`gpu_dra_claims_held 3`,
		`gpu_dra_disturbed_shares{cause="mps-interrupted"} 7`,
		`gpu_dra_devices{state="healthy"} 7`,
		`gpu_dra_devices{state="unhealthy"} 1`,
		`gpu_dra_node_config_problem 1`,
		`gpu_dra_node_phase{phase="NoDriver"} 0`,
		`gpu_dra_node_phase{phase="Published"} 1`,
		`gpu_dra_claim_memory_promised_bytes{claim="share",container="",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="",uuid="GPU-1"} 2.147483648e+10`,
		`gpu_dra_claim_compute_promised_ratio{claim="share",container="",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="",uuid="GPU-1"} 0.25`,
		`gpu_dra_claim_healthy{claim="share",container="",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="",uuid="GPU-1"} 0`,
		`gpu_dra_claim_memory_used_bytes{claim="share",container="main",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="trainer",uuid="GPU-1"} 3.221225472e+09`,
		`gpu_dra_claim_memory_limit_bytes{claim="share",container="main",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="trainer",uuid="GPU-1"} 1.073741824e+10`,
		`gpu_dra_claim_sm_used_ratio{claim="share",container="main",device="gpu-1b-00",enforcement="driver",namespace="team-a",pod="trainer",uuid="GPU-1"} 0.5`,
		`gpu_dra_claim_rows_omitted 2`,
		`gpu_dra_claim_energy_joules_total{class="mps.nvidia.com",namespace="team-a"} 4200`,
		`gpu_dra_device_clock_limited{device="gpu-1b-00",reason="hw-thermal-slowdown",uuid="GPU-1"} 1`,
		`gpu_dra_device_clock_limited{device="gpu-1b-00",reason="sw-power-cap",uuid="GPU-1"} 0`,
		`gpu_dra_claim_rows_invalid 0`,
		`gpu_dra_share_seconds_total{class="mps.nvidia.com",namespace="team-a"} 12.5`,
		`gpu_dra_device_healthy{cause="xid-79",device="gpu-1b-00",uuid="GPU-1"} 0`,
		`gpu_dra_device_healthy{cause="",device="gpu-43-00",uuid="GPU-2"} 1`,
		`gpu_dra_device_utilization_ratio{device="gpu-43-00",uuid="GPU-2"} 0.25`,
		`gpu_dra_device_memory_used_bytes{device="gpu-43-00",uuid="GPU-2"} 3.221225472e+09`,
		`gpu_dra_device_memory_bytes{device="gpu-43-00",uuid="GPU-2"} 8.589934592e+10`,
		`gpu_dra_device_memory_stranded_bytes{device="gpu-43-00",uuid="GPU-2"} 1.073741824e+10`,
		`gpu_dra_device_slices_stranded{device="gpu-43-00",uuid="GPU-2"} 1`,
		`gpu_dra_device_temperature_celsius{device="gpu-43-00",uuid="GPU-2"} 61`,
		`gpu_dra_device_power_watts{device="gpu-43-00",uuid="GPU-2"} 420.5`,
		`gpu_dra_prepare_refusals_total{reason="AlreadyInUse"} 0`,
		`gpu_dra_prepare_refusals_total{reason="Invalid"} 1`,
		`gpu_dra_status_queue_depth 1`,
		`gpu_dra_reconcile_held_back 2`,
		`gpu_dra_other_drivers 3`,
		`gpu_dra_foreign_devices 4`,
		`gpu_dra_status_writes_total{outcome="dropped"} 1`,
		`gpu_dra_slice_publish_errors_total{reason="Forbidden"} 1`,
		`gpu_dra_foreign_processes{device="gpu-1b-00"} 5`,
		`gpu_dra_unlimited_containers{device="gpu-1b-00"} 6`,
		`gpu_dra_prepare_duration_seconds_count{kind="mig",outcome="error"} 1`,
		`gpu_dra_prepare_duration_seconds_bucket{kind="gpu",outcome="ok",le="0.0015"} 0`,
		`gpu_dra_prepare_duration_seconds_bucket{kind="gpu",outcome="ok",le="0.002"} 1`,
		`gpu_dra_unprepare_duration_seconds_count{outcome="ok"} 1`,
		`gpu_dra_unprepare_duration_seconds_count{outcome="error"} 1`,
		`gpu_dra_build_info{`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if got := strings.Count(text, "gpu_dra_claim_memory_used_bytes{"); got != 1 {
		t.Errorf("%d values of the memory that is used, want that of the container only", got)
	}
	for _, metric := range []string{"power_watts", "memory_stranded_bytes"} {
		if got := strings.Count(text, "gpu_dra_device_"+metric+"{"); got != 1 {
			t.Errorf("%d values of %s, want none for the GPU of which it is not known", got, metric)
		}
	}
	if strings.Contains(text, `_processes{device="gpu-43-00"}`) || strings.Contains(text, `_containers{device="gpu-43-00"}`) {
		t.Error("a finding of the last round stays")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, namespace) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Claims are prepared without metrics.
func TestAPanicOfACollectorCostsOnlyItsMetrics(t *testing.T) {
	state := State{
		ClaimsHeld: func() (int, error) { return 3, nil }, SeesPods: func() bool { return true }, ConfigProblem: func() bool { return false },
		Devices: func() map[string]int { return map[string]int{"healthy": 7} }, Phases: func() map[string]int { panic("no phase") },
		Usage: func() agentv1.Report { panic("no report") }, GPUs: func() []GPUHealth { return nil },
		ShareSeconds: func() map[usage.Account]float64 { return nil }, Power: func() Power { return Power{} },
	}
	recorder := httptest.NewRecorder()
	Handler(NewMetrics(nil), state, nil, nil).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body := recorder.Body.String()
	if recorder.Code != http.StatusOK || !strings.Contains(body, `gpu_dra_devices{state="healthy"} 7`) || strings.Contains(body, "gpu_dra_node_phase{") {
		t.Errorf("%d:\n%s", recorder.Code, body)
	}
}

func TestEachScrapeCountsTheClaims(t *testing.T) {
	claims := 0
	state := State{
		ClaimsHeld: func() (int, error) { claims++; return claims, nil }, SeesPods: func() bool { return true }, ConfigProblem: func() bool { return false },
		Devices: func() map[string]int { return nil }, Phases: func() map[string]int { return nil }, Usage: func() agentv1.Report { return agentv1.Report{} },
		ShareSeconds: func() map[usage.Account]float64 { return nil }, GPUs: func() []GPUHealth { return nil }, Power: func() Power { return Power{} },
	}
	handler := Handler(NewMetrics(nil), state, nil, nil)
	for n := 1; n <= 2; n++ {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if want := fmt.Sprintf("gpu_dra_claims_held %d\n", n); !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("scrape %d lacks %s", n, want)
		}
	}
}

func TestARowThatIsNotValidCostsOnlyItself(t *testing.T) {
	state := State{
		ClaimsHeld: func() (int, error) { return 1, nil }, SeesPods: func() bool { return true }, ConfigProblem: func() bool { return false },
		Devices: func() map[string]int { return nil }, Phases: func() map[string]int { return nil },
		ShareSeconds: func() map[usage.Account]float64 { return nil }, GPUs: func() []GPUHealth { return nil }, Power: func() Power { return Power{} },
		Usage: func() agentv1.Report {
			row := func(container string) agentv1.Row {
				return agentv1.Row{Labels: agentv1.Labels{Namespace: "team-a", Claim: "share", Pod: "trainer", Container: container}, MemoryUsedBytes: new(uint64(1)), SMUsed: new(.5)}
			}
			return agentv1.Report{Rows: []agentv1.Row{row("a"), row("\xff"), row("b")}}
		},
	}
	recorder := httptest.NewRecorder()
	Handler(NewMetrics(nil), state, nil, nil).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text := recorder.Body.String()
	if recorder.Code != http.StatusOK {
		t.Fatalf("/metrics = %d %s", recorder.Code, text)
	}
	if got := strings.Count(text, "gpu_dra_claim_memory_used_bytes{"); got != 2 {
		t.Errorf("%d containers, want the two others", got)
	}
	if want := "gpu_dra_claim_rows_invalid 1\n"; !strings.Contains(text, want) {
		t.Errorf("/metrics lacks %s", want)
	}
}
