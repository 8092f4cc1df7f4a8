// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the rules of the chart with Prometheus' own rule engine. It also
// pins the release of Prometheus that the end-to-end tests run.
package monitoring

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	rulesFile = "../../../deployments/helm/gpu-dra-driver/files/rules.yaml"
	document  = "../../../docs/admin/monitoring.md"
	alertsDoc = "../../../docs/admin/monitoring.md"
	// interval is the time between samples, and between evaluations.
	interval = time.Minute
)

// claim has the labels of a metric of a claim, as a scrape with honor_labels stores them.
const claim = `namespace="team",claim="job",pod="job-0",container="main",device="gpu-1b-00",uuid="GPU-1",node="a"`

// alertCase has series that make one alert fire, and series that just do not.
type alertCase struct {
	// fires and quiet are lines of a "load" of Prometheus' test language.
	fires, quiet string
	// after is the earliest time at which the alert fires. One interval before, it is pending.
	after time.Duration
	// says are parts of the summary and the description.
	says []string
}

// held returns a series with the same value for a day.
func held(series string, value any) string { return fmt.Sprintf("%s %v+0x1440\n", series, value) }

// grows returns a counter that grows by an amount a minute for a day.
func grows(series string, amount float64) string {
	return fmt.Sprintf("%s 0+%gx1440\n", series, amount)
}

// prepares returns the histogram of an agent that prepares a number of claims a minute.
// slow of them take between 10 and 30 seconds.
func prepares(all, slow float64) string {
	const bucket = `gpu_dra_prepare_duration_seconds_bucket{node="a",kind="gpu",outcome="ok",le="%s"}`
	return grows(fmt.Sprintf(bucket, "0.005"), all-slow) + grows(fmt.Sprintf(bucket, "10"), all-slow) +
		grows(fmt.Sprintf(bucket, "30"), all) + grows(fmt.Sprintf(bucket, "+Inf"), all)
}

// memory returns the memory of a container's claim, in GiB.
func memory(enforcement string, used, limit, promised float64) string {
	series := func(name string, gib float64) string {
		return held(fmt.Sprintf(`gpu_dra_claim_memory_%s_bytes{%s,enforcement=%q}`, name, claim, enforcement), gib*(1<<30))
	}
	return series("used", used) + series("limit", limit) + series("promised", promised)
}

func alertCases() map[string]alertCase {
	return map[string]alertCase{
		"GPUAgentDown": {
			fires: held(`up{job="gpu-dra-driver",node="a",instance="10.0.0.1:8080"}`, 0),
			quiet: held(`up{job="gpu-dra-driver",node="a",instance="10.0.0.1:8080"}`, 1) + held(`up{job="other"}`, 0),
			after: 10 * time.Minute,
			says:  []string{"The GPU agent of a", "10.0.0.1:8080"},
		},
		"GPUAgentNotReady": {
			fires: held(`gpu_dra_node_phase{node="a",phase="Looking"}`, 1),
			quiet: held(`gpu_dra_node_phase{node="a",phase="Looking"}`, 0) + held(`gpu_dra_node_phase{node="a",phase="Published"}`, 1),
			after: 10 * time.Minute,
		},
		"GPUNodeWithoutGPUs": {
			fires: held(`gpu_dra_node_phase{node="a",phase="NoDriver"}`, 1),
			quiet: held(`gpu_dra_node_phase{node="a",phase="NoDriver"}`, 0) + held(`gpu_dra_node_phase{node="a",phase="NoGPUs"}`, 0),
			after: 15 * time.Minute,
			says:  []string{"the GPU driver is not loaded."},
		},
		"GPUUnhealthy": {
			// An agent and its successor report the same GPU.
			fires: held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause="xid-79",instance="one"}`, 0) +
				held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause="xid-79",instance="two"}`, 0),
			quiet: held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause=""}`, 1),
			after: 5 * time.Minute,
			says:  []string{"GPU gpu-1b-00 of a has failed: xid-79", "GPU-1"},
		},
		"GPUClocksSlowed": {
			fires: held(`gpu_dra_device_clock_limited{node="a",device="gpu-1b-00",uuid="GPU-1",reason="hw-thermal-slowdown"}`, 1) +
				held(`gpu_dra_device_clock_limited{node="a",device="gpu-1b-00",uuid="GPU-1",reason="sw-power-cap"}`, 1),
			// The power limit is the usual reason of a GPU that computes.
			quiet: held(`gpu_dra_device_clock_limited{node="a",device="gpu-1b-00",uuid="GPU-1",reason="sw-power-cap"}`, 1) +
				held(`gpu_dra_device_clock_limited{node="a",device="gpu-1b-00",uuid="GPU-1",reason="hw-thermal-slowdown"}`, 0),
			after: 10 * time.Minute,
			says:  []string{"GPU gpu-1b-00 of a is slow: hw-thermal-slowdown", "100%"},
		},
		"GPUUnreadable": {
			fires: held(`gpu_dra_devices{node="a",state="unreadable"}`, 2),
			quiet: held(`gpu_dra_devices{node="a",state="unreadable"}`, 0) + held(`gpu_dra_devices{node="a",state="unhealthy"}`, 1),
			after: 10 * time.Minute,
			says:  []string{"2 GPUs of a"},
		},
		"GPUNodeConfigProblem": {
			fires: held(`gpu_dra_node_config_problem{node="a"}`, 1),
			quiet: held(`gpu_dra_node_config_problem{node="a"}`, 0),
			after: 15 * time.Minute,
		},
		"GPUPrepareFailing": {
			fires: grows(`gpu_dra_prepare_duration_seconds_count{node="a",kind="gpu",outcome="error"}`, 1),
			quiet: held(`gpu_dra_prepare_duration_seconds_count{node="a",kind="gpu",outcome="error"}`, 9) +
				grows(`gpu_dra_prepare_duration_seconds_count{node="a",kind="gpu",outcome="ok"}`, 60),
			after: 16 * time.Minute, // a rate needs two samples
			says:  []string{"16.67m a second"},
		},
		"GPUPrepareRefused": {
			fires: grows(`gpu_dra_prepare_refusals_total{node="a",reason="Invalid"}`, 1),
			quiet: held(`gpu_dra_prepare_refusals_total{node="a",reason="Invalid"}`, 9) + grows(`gpu_dra_prepare_refusals_total{node="a",reason="AlreadyInUse"}`, 1),
			after: 16 * time.Minute,
			says:  []string{"refuses claims: Invalid"},
		},
		"GPUPrepareSlow": {
			fires: prepares(1000, 11),
			quiet: prepares(1000, 10),
			after: 16 * time.Minute,
			says:  []string{"takes 11.82s or longer"},
		},
		"GPUOtherDriver": {
			fires: held(`gpu_dra_other_drivers{node="a"}`, 1),
			quiet: held(`gpu_dra_other_drivers{node="a"}`, 0),
			after: 10 * time.Minute,
			says:  []string{"Another driver of the same name serves a"},
		},
		"GPUClaimsHeldBack": {
			fires: held(`gpu_dra_reconcile_held_back{node="a"}`, 1),
			quiet: held(`gpu_dra_reconcile_held_back{node="a"}`, 0),
			after: 30 * time.Minute,
			says:  []string{"1 claims keep devices of a"},
		},
		"GPUSlicesNotPublished": {
			fires: grows(`gpu_dra_slice_publish_errors_total{node="a",reason="Forbidden"}`, 1),
			quiet: held(`gpu_dra_slice_publish_errors_total{node="a",reason="Forbidden"}`, 3),
			after: 16 * time.Minute,
			says:  []string{"(Forbidden)"},
		},
		"GPUStatusQueueStuck": {
			fires: held(`gpu_dra_status_queue_depth{node="a"}`, 1),
			// A queue that is emptied now and then.
			quiet: `gpu_dra_status_queue_depth{node="a"} ` + strings.Repeat("1+0x13 0 ", 20) + "\n",
			after: 15 * time.Minute,
		},
		"GPURoomFailing": {
			fires: held(`gpu_dra_room_last_success_timestamp_seconds{namespace="gpu-dra-driver"}`, 0),
			// A pod that is not the leader has had no round.
			quiet: grows(`gpu_dra_room_last_success_timestamp_seconds{namespace="gpu-dra-driver",pod="room-0"}`, 60) +
				held(`gpu_dra_room_last_success_timestamp_seconds{namespace="gpu-dra-driver",pod="room-1"}`, 0),
			after: 21 * time.Minute, // more than 15 minutes, for 5 minutes
			says:  []string{"namespace gpu-dra-driver has failed"},
		},
		"GPUClaimNearMemoryLimit": {
			fires: memory("driver", 9.6, 10, 10),
			quiet: memory("driver", 9.5, 10, 10),
			after: 15 * time.Minute,
			says:  []string{"team/job-0", "container main uses 96% of", "claim job"},
		},
		"GPUClaimAboveMemoryPromise": {
			fires: memory("cooperative", 10.25, 10, 10),
			quiet: memory("cooperative", 10.15, 10, 10) + strings.ReplaceAll(memory("driver", 12, 12, 10), `claim="job"`, `claim="held"`),
			after: 5 * time.Minute,
			says:  []string{"team/job", "use 10.25GiB of gpu-1b-00 on a"},
		},
		"GPUMemoryUnlimited": {
			// An agent and its successor count the same containers.
			fires: held(`gpu_dra_unlimited_containers{node="a",device="gpu-1b-00",instance="one"}`, 2) +
				held(`gpu_dra_unlimited_containers{node="a",device="gpu-1b-00",instance="two"}`, 2),
			quiet: held(`gpu_dra_unlimited_containers{node="a",device="gpu-1b-00"}`, 0),
			after: 10 * time.Minute,
			says:  []string{"Containers on gpu-1b-00 of a", "2 containers compute"},
		},
		"GPUClaimMemoryUnused": {
			// Two containers with a claim use a part each of the same promise.
			fires: memory("driver", 0.4, 10, 10) + strings.ReplaceAll(memory("driver", 0.5, 10, 10), `container="main"`, `container="side"`),
			quiet: memory("driver", 0.5, 10, 10) + strings.ReplaceAll(memory("driver", 0.5, 10, 10), `container="main"`, `container="side"`),
			after: 6 * time.Hour,
			says:  []string{"(now 9%)"},
		},
		"GPUClaimComputeIdle": {
			// It holds memory. The second container computes in the quiet case.
			fires: memory("driver", 9, 10, 10) + held(`gpu_dra_claim_sm_used_ratio{`+claim+`}`, 0.001) + held(`gpu_dra_claim_sm_used_ratio{`+strings.ReplaceAll(claim, `"main"`, `"side"`)+`}`, 0.002),
			quiet: held(`gpu_dra_claim_sm_used_ratio{`+claim+`}`, 0) + held(`gpu_dra_claim_sm_used_ratio{`+strings.ReplaceAll(claim, `"main"`, `"side"`)+`}`, 0.01),
			after: 6 * time.Hour,
			says:  []string{"team/job", "on gpu-1b-00 of a"},
		},
	}
}

func TestEachAlertFiresAndJustNot(t *testing.T) {
	cases := alertCases()
	var names []string
	for name := range alertsAt(t, rulesFile, "", 0) {
		names = append(names, name)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(cases)), slices.Sorted(slices.Values(names))); diff != "" {
		t.Fatalf("alerts of the rules, and cases of this test (-cases +rules):\n%s", diff)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fired := alertsAt(t, rulesFile, c.fires, c.after)[name]
			if len(fired) != 1 {
				t.Fatalf("%d alerts fire after %v, want 1", len(fired), c.after)
			}
			annotations := fired[0].Annotations
			for _, text := range append(c.says, "") {
				if !strings.Contains(annotations.Get("summary")+"\n"+annotations.Get("description"), text) {
					t.Errorf("summary and description do not contain %q: %s", text, annotations)
				}
			}
			// A label that the expression has aggregated away leaves a hole in the text.
			if hole := regexp.MustCompile(`  | [.,:)]|\( | of (is|on|has|does|cannot)\b|<no value>|error expanding`).FindString(annotations.String()); hole != "" {
				t.Errorf("%q in a text: a label is missing: %s", hole, annotations)
			}
			if early := alertsAt(t, rulesFile, c.fires, c.after-interval)[name]; len(early) != 0 {
				t.Errorf("fires after %v already", c.after-interval)
			}
			if quiet := alertsAt(t, rulesFile, c.quiet, 8*time.Hour)[name]; len(quiet) != 0 {
				t.Errorf("fires without a cause: %s", quiet[0].Annotations)
			}
		})
	}
}

func TestRecordedUsageOfNamespaces(t *testing.T) {
	series := memory("driver", 4, 10, 10) +
		// Another container with the claim, and the agent's successor with the same claim.
		strings.ReplaceAll(memory("driver", 1, 10, 10), `container="main"`, `container="side"`) +
		strings.ReplaceAll(memory("driver", 4, 10, 10), `node="a"`, `node="a",instance="new"`) +
		strings.ReplaceAll(memory("driver", 2, 5, 5), `claim="job"`, `claim="second"`) +
		strings.ReplaceAll(memory("driver", 7, 8, 8), `namespace="team"`, `namespace="other"`) +
		held(`gpu_dra_claim_compute_promised_ratio{`+claim+`}`, 0.5) + held(`gpu_dra_claim_sm_used_ratio{`+claim+`}`, 0.125) +
		// Without NVML's figure, whether the compute is idle is not known.
		held(`gpu_dra_claim_compute_promised_ratio{`+strings.ReplaceAll(claim, `"job"`, `"second"`)+`}`, 0.25) +
		grows(`gpu_dra_share_seconds_total{node="a",namespace="team",class="mps.nvidia.com"}`, 30) +
		grows(`gpu_dra_share_seconds_total{node="b",namespace="team",class="gpu.nvidia.com"}`, 60) +
		held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause=""}`, 1) +
		held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause="",instance="new"}`, 1) +
		held(`gpu_dra_device_healthy{node="b",device="gpu-1b-00",uuid="GPU-2",cause="xid-79"}`, 0) +
		held(`gpu_dra_device_healthy{node="b",device="gpu-1c-00",uuid="GPU-3",cause=""}`, 1)
	const gib = 1 << 30
	want := map[string]float64{
		`namespace:gpu_dra_claim_memory_promised_bytes:sum{namespace="team"}`:                      15 * gib,
		`namespace:gpu_dra_claim_memory_promised_bytes:sum{namespace="other"}`:                     8 * gib,
		`namespace:gpu_dra_claim_memory_used_bytes:sum{namespace="team"}`:                          7 * gib,
		`namespace:gpu_dra_claim_memory_used_bytes:sum{namespace="other"}`:                         7 * gib,
		`namespace:gpu_dra_claim_compute_promised:sum{namespace="team"}`:                           0.75,
		`namespace:gpu_dra_claim_compute_idle:sum{namespace="team"}`:                               0.375,
		`namespace_class:gpu_dra_share_hours:increase1h{class="mps.nvidia.com", namespace="team"}`: 0.5,
		`namespace_class:gpu_dra_share_hours:increase1h{class="gpu.nvidia.com", namespace="team"}`: 1,
		`cluster:gpu_dra_gpus:count{}`:                                                             3,
		`cluster:gpu_dra_gpus_promised:ratio{}`:                                                    0.5,
	}
	got := map[string]float64{}
	evaluate(t, rulesFile, series, 2*time.Hour, func(suite *promqltest.LazyLoader, at time.Time) {
		result, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Queryable())(suite.Context(), `{__name__=~".+:gpu_dra_.+"}`, at)
		must(t, err)
		for _, sample := range result {
			got[sample.Metric.Get(model.MetricNameLabel)+labels.NewBuilder(sample.Metric).Del(model.MetricNameLabel).Labels().String()] = float64(int64(sample.F*1e6+0.5)) / 1e6
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// Half a GPU for a day, with an agent that is replaced at noon.
func TestTheBillOfTheDocument(t *testing.T) {
	bill := regexp.MustCompile(`(?m)^sum by .*\[31d:1h\].*$`).FindString(read(t, document))
	if bill == "" {
		t.Fatalf("%s has no query for a month", document)
	}
	const charged = `gpu_dra_share_seconds_total{node="a",namespace="team",class="mps.nvidia.com",instance="%s"}`
	series := fmt.Sprintf(charged, "old") + " 0+30x720\n" + fmt.Sprintf(charged, "new") + " _x720 0+30x720\n"
	evaluate(t, rulesFile, series, 24*time.Hour, func(suite *promqltest.LazyLoader, at time.Time) {
		result, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Queryable())(suite.Context(), strings.Replace(bill, "31d", "1d", 1), at)
		must(t, err)
		if len(result) != 1 || result[0].F < 11.9 || result[0].F > 12.1 {
			t.Errorf("the bill is %v, want 12 hours", result)
		}
	})
}

// The link in the alert is to the page with the section about the cause.
func TestTheAlertAboutAFaultLinksToItsCause(t *testing.T) {
	const document = "causes.md"
	for _, cause := range []string{"xid-79", "lost", "recovery-gpu-reset"} {
		series := held(`gpu_dra_device_healthy{node="a",device="gpu-1b-00",uuid="GPU-1",cause="`+cause+`"}`, 0)
		alerts := alertsAt(t, rulesFile, series, time.Hour)["GPUUnhealthy"]
		if len(alerts) != 1 {
			t.Fatalf("%s: %d alerts", cause, len(alerts))
		}
		if text, link := alerts[0].Annotations.Get("description"), "docs/admin/"+document+"#"+cause; !strings.HasSuffix(text, link) {
			t.Errorf("%s: the alert lacks the link %s: %s", cause, link, text)
		}
		if text := read(t, "../../../docs/admin/"+document); !strings.Contains(text, "\n### "+cause+"\n") {
			t.Errorf("%s has no section %s", document, cause)
		}
	}
}

func TestEachAlertHasARunbook(t *testing.T) {
	text := read(t, alertsDoc)
	for name, runbook := range runbooks(t) {
		if !strings.HasSuffix(runbook, "/docs/admin/monitoring.md#"+strings.ToLower(name)) {
			t.Errorf("the runbook of %s is %s", name, runbook)
		}
		if !strings.Contains(text, "\n## "+name+"\n") {
			t.Errorf("%s has no section %s", alertsDoc, name)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (GPU[A-Za-z]+)$`).FindAllStringSubmatch(text, -1) {
		if _, ok := alertCases()[heading[1]]; !ok {
			t.Errorf("%s describes %s, which the rules do not have", alertsDoc, heading[1])
		}
	}
}

// runbooks returns the link of each alert.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	links := map[string]string{}
	for _, r := range load(t, rulesFile) {
		if alert, ok := r.(*rules.AlertingRule); ok {
			links[alert.Name()] = alert.Annotations().Get("runbook_url")
			if severity := alert.Labels().Get("severity"); !slices.Contains([]string{"critical", "warning", "info"}, severity) {
				t.Errorf("%s has the severity %q", alert.Name(), severity)
			}
		}
	}
	return links
}

// load reads the rules as Prometheus does.
func load(t *testing.T, file string) []rules.Rule {
	t.Helper()
	var all []rules.Rule
	for _, g := range groups(t, file, &rules.ManagerOptions{}) {
		all = append(all, g.Rules()...)
	}
	return all
}

func groups(t *testing.T, file string, options *rules.ManagerOptions) []*rules.Group {
	t.Helper()
	options.Logger, options.Parser = promslog.NewNopLogger(), parser.NewParser(parser.Options{})
	loaded, errs := rules.NewManager(options).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if errs != nil {
		t.Fatal(errs)
	}
	// By name: the order does not matter, because no group reads what another records.
	return slices.Collect(maps.Values(loaded))
}

// alertsAt returns the alerts that fire at a time, by name. It has an empty list for each
// other alert.
func alertsAt(t *testing.T, file, series string, at time.Duration) map[string][]*rules.Alert {
	t.Helper()
	firing := map[string][]*rules.Alert{}
	for _, g := range evaluate(t, file, series, at, nil) {
		for _, r := range g.Rules() {
			alert, ok := r.(*rules.AlertingRule)
			if !ok {
				continue
			}
			firing[alert.Name()] = slices.DeleteFunc(alert.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
		}
	}
	return firing
}

// evaluate runs the rules on the series from 0 to a time, calls then, and returns the groups.
func evaluate(t *testing.T, file, series string, until time.Duration, then func(*promqltest.LazyLoader, time.Time)) []*rules.Group {
	t.Helper()
	suite, err := promqltest.NewLazyLoader(fmt.Sprintf("load %s\n%s", interval, regexp.MustCompile(`(?m)^`).ReplaceAllString(series, "  ")),
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	must(t, err)
	defer func() {
		if err := suite.Close(); err != nil {
			t.Error(err)
		}
	}()
	all := groups(t, file, &rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Queryable()),
		Appendable: suite.Storage(), Queryable: suite.Queryable(), Context: t.Context(),
		NotifyFunc: func(_ context.Context, _ string, _ ...*rules.Alert) {},
	})
	for at := time.Unix(0, 0).UTC(); at.Sub(time.Unix(0, 0)) <= until; at = at.Add(interval) {
		suite.WithSamplesTill(at, func(err error) {
			must(t, err)
			for _, g := range all {
				g.Eval(suite.Context(), at)
				for _, r := range g.Rules() {
					if r.LastError() != nil {
						t.Fatalf("%s at %v: %v", r.Name(), at, r.LastError())
					}
				}
			}
		})
	}
	if then != nil {
		then(suite, time.Unix(0, 0).Add(until))
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
