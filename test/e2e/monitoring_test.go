// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

var prometheusProgram = flag.String("prometheus", "../../.build/bin/prometheus", "Prometheus, which `make .build/bin/prometheus` builds")

// The chart's PodMonitor, rules and dashboard, with a real Prometheus and the metrics of the agent.
func TestMonitoringOfTheChart(t *testing.T) {
	const failed = "gpu-df-00"
	runWithDriver(t, "gpu-1b-00", "dgx-h100-r615")
	healsAtTheEnd(t)
	ns := namespaceFor(t, "monitored")
	p := startPrometheus(t)

	apply(t, ns, claim("whole", "", "")+share("greedy", "10Gi", "")+share("refused", "10Gi", config("ShareConfig", `"processes": 40`))+
		cudaPod("greedy", []string{"greedy"}, harness.Greedy(3)...)+pod("whole", "whole", "")+"---"+pod("refused", "refused", ""))
	ready(t, ns, "whole", "greedy")
	_, err := cluster.WaitEvent(t.Context(), ns, "refused", "of the 48 processes that MPS admits")
	must(t, err)
	sim(t, "fault", "ecc", "--gpu", pciAddress(failed))
	waitUnhealthy(t, failed, true)

	t.Run("the metrics of a claim name its user and not the agent", func(t *testing.T) {
		node, agentPod := agentOn(t)
		used := p.eventually(t, `gpu_dra_claim_memory_used_bytes{namespace="monitored",pod="greedy",container="main"} > 9 * 2^30`)[0].Metric
		if used["node"] != node || used["job"] != harness.Namespace || used["claim"] != "greedy" {
			t.Errorf("labels %v, want the node %s and the claim greedy", used, node)
		}
		// A claim's promise is for all its containers, so it has none.
		promised := p.eventually(t, `gpu_dra_claim_memory_promised_bytes{claim="greedy"}`)[0].Metric
		if promised["pod"] != "" || promised["container"] != "" {
			t.Errorf("the promise to a claim has the pod %q", promised["pod"])
		}
		if up := p.eventually(t, `up == 1`)[0].Metric; up["pod"] != agentPod || up["namespace"] != harness.Namespace {
			t.Errorf("the agent is %v, want the pod %s", up, agentPod)
		}
	})
	t.Run("every query of the dashboard has an answer", func(t *testing.T) {
		for _, q := range dashboardQueries(t) {
			if errorsOnly := regexp.MustCompile(`unprepare.*outcome="error"|slice_publish_errors|status_writes.*outcome="error"`); errorsOnly.MatchString(q) {
				// The API server does not fail in this test. test/tree/docs checks the names.
				_, err := p.query(t.Context(), q)
				must(t, err)
				continue
			}
			p.eventually(t, q)
		}
	})
	t.Run("every rule is evaluated and every recorded series exists", func(t *testing.T) {
		for _, r := range p.rules(t) {
			if r.Health != "ok" {
				t.Errorf("%s: %s", r.Name, r.LastError)
			}
			if r.Type == "recording" {
				p.eventually(t, r.Name)
			}
		}
		for query, low := range map[string]float64{
			`namespace:gpu_dra_claim_memory_promised_bytes:sum{namespace="monitored"}`: 89 * gi, // a GPU and 10Gi
			`namespace:gpu_dra_claim_compute_promised:sum{namespace="monitored"}`:      1,
			`cluster:gpu_dra_gpus:count`: 8,
		} {
			p.eventually(t, fmt.Sprintf("%s >= %g < %g", query, low, low*1.3))
		}
	})
	t.Run("alerts find the failed GPU, the refused claim and the full share", func(t *testing.T) {
		for _, labels := range []string{
			`alertname="GPUUnhealthy",device="` + failed + `",cause="ecc"`,
			`alertname="GPUPrepareFailing"`,
			`alertname="GPUPrepareRefused"`,
			`alertname="GPUClaimNearMemoryLimit",pod="greedy"`,
		} {
			p.eventually(t, "ALERTS{"+labels+"}")
		}
		// Others are about faults that this node does not have.
		expected := "GPUUnhealthy|GPUPrepareFailing|GPUPrepareRefused|GPUPrepareSlow|GPUClaimNearMemoryLimit|GPUClaimMemoryUnused|GPUClaimComputeIdle|GPUStatusQueueStuck"
		others, err := p.query(t.Context(), `ALERTS{alertname!~"`+expected+`"}`)
		must(t, err)
		for _, a := range others {
			t.Errorf("alert without a cause: %v", a.Metric)
		}
	})
	sim(t, "reset", "--gpu", pciAddress(failed))
	waitUnhealthy(t, failed, false)
	remove(t, ns, "whole", "greedy", "refused")
}

// agentOn returns the node and the pod of the agent.
func agentOn(t *testing.T) (node, name string) {
	t.Helper()
	pods, err := cluster.Client.CoreV1().Pods(harness.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"})
	must(t, err)
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods of the agent, want 1", len(pods.Items))
	}
	return pods.Items[0].Spec.NodeName, pods.Items[0].Name
}

// prometheus is a Prometheus that reads the agent's metrics, with the chart's rules.
type prometheus struct{ address string }

// startPrometheus starts Prometheus as an operator does for the chart's PodMonitor and
// PrometheusRule. The difference is that it reads the metrics through the API server. It
// ends with the test.
func startPrometheus(t *testing.T) prometheus {
	t.Helper()
	node, pod := agentOn(t)
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", harness.Namespace, "pods", pod+":8080", "proxy/metrics").DoRaw(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(text)
	}))
	t.Cleanup(metrics.Close)

	objects, err := cluster.Helm(t.Context(), "template", harness.Namespace, "deployments/helm/gpu-dra-driver", "--show-only", "templates/monitoring.yaml",
		"--set", "monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true")
	must(t, err)
	dir := t.TempDir()
	config := map[string]any{"global": map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"}}
	for text := range strings.SplitSeq(objects, "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				PodMetricsEndpoints []struct {
					HonorLabels bool
					Relabelings []struct {
						SourceLabels []string
						TargetLabel  string
					}
				}
				Groups []any
			}
		}
		must(t, yaml.Unmarshal([]byte(text), &object))
		switch object.Kind {
		case "PodMonitor":
			endpoint := object.Spec.PodMetricsEndpoints[0]
			var relabelings []any
			for _, r := range endpoint.Relabelings {
				relabelings = append(relabelings, map[string]any{"source_labels": r.SourceLabels, "target_label": r.TargetLabel})
			}
			config["scrape_configs"] = []any{map[string]any{
				"job_name": harness.Namespace, "honor_labels": endpoint.HonorLabels, "relabel_configs": relabelings,
				"static_configs": []any{map[string]any{
					"targets": []string{strings.TrimPrefix(metrics.URL, "http://")},
					// The operator adds these, and Kubernetes' service discovery the one with underscores.
					"labels": map[string]string{
						"namespace": harness.Namespace, "pod": pod, "container": "agent", "endpoint": "http",
						"__meta_kubernetes_pod_node_name": node,
					},
				}},
			}}
		case "PrometheusRule":
			rules, err := yaml.Marshal(map[string]any{"groups": object.Spec.Groups})
			must(t, err)
			config["rule_files"] = []string{filepath.Join(dir, "rules.yaml")}
			must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600))
		}
	}
	text, err := yaml.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), text, 0o600))

	log := &watchedLog{pattern: regexp.MustCompile(`msg="Listening on" .*address=(\S+)`), found: make(chan string, 1)}
	cmd := exec.CommandContext(t.Context(), *prometheusProgram, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	var waitErr error
	ended := make(chan struct{})
	go func() { waitErr = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Prometheus logged:\n%s", log)
		}
		_ = cmd.Process.Kill()
		<-ended
	})
	select {
	case address := <-log.found:
		return prometheus{"http://" + address}
	case <-ended:
		t.Fatalf("Prometheus ended: %v", waitErr)
	case <-time.After(time.Minute):
		t.Fatal("Prometheus does not listen after a minute")
	}
	return prometheus{}
}

// watchedLog keeps what a program writes, and sends the first match of a pattern.
type watchedLog struct {
	pattern *regexp.Regexp
	found   chan string

	mu   sync.Mutex
	text bytes.Buffer
	sent bool
}

// Write implements [io.Writer].
func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if m := l.pattern.FindSubmatch(l.text.Bytes()); m != nil && !l.sent {
		l.sent = true
		l.found <- string(m[1])
	}
	return len(p), nil
}

func (l *watchedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sample is an entry of the answer to a query.
type sample struct{ Metric map[string]string }

// rule is an entry of Prometheus' list of rules.
type rule struct{ Name, Type, Health, LastError string }

// get reads the data of an answer of Prometheus' API.
func (p prometheus) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+"/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// query evaluates an expression now.
func (p prometheus) query(ctx context.Context, expression string) ([]sample, error) {
	var data struct{ Result []sample }
	if err := p.get(ctx, "query?query="+url.QueryEscape(expression), &data); err != nil {
		return nil, fmt.Errorf("query %s: %w", expression, err)
	}
	return data.Result, nil
}

// eventually waits until an expression has a result, and returns it.
func (p prometheus) eventually(t *testing.T, expression string) []sample {
	t.Helper()
	var result []sample
	must(t, harness.Until(t.Context(), func(ctx context.Context) (_ bool, _ string, err error) {
		result, err = p.query(ctx, expression)
		return len(result) > 0, "no result of " + expression, err
	}))
	return result
}

// rules lists the rules after each has been evaluated.
func (p prometheus) rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		var data struct{ Groups []struct{ Rules []rule } }
		err := p.get(ctx, "rules", &data)
		all = nil
		for _, g := range data.Groups {
			all = append(all, g.Rules...)
		}
		pending := slices.ContainsFunc(all, func(r rule) bool { return r.Health == "unknown" })
		return len(all) > 0 && !pending, "rules are not evaluated yet", err
	}))
	return all
}

// dashboardQueries returns the queries of the chart's dashboard as Grafana sends them with all
// nodes and namespaces selected.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root, "deployments/helm/gpu-dra-driver/files/dashboard.json"))
	must(t, err)
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	must(t, json.Unmarshal(text, &dashboard))
	var queries []string
	// Grafana lists the values of a label for a variable.
	for _, m := range regexp.MustCompile(`"definition": "label_values\((\w+), (\w+)\)"`).FindAllStringSubmatch(string(text), -1) {
		queries = append(queries, fmt.Sprintf(`%s{%s!=""}`, m[1], m[2]))
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, strings.NewReplacer("$__rate_interval", "1m", "$__range", "5m", "$node", ".*", "$namespace", ".*").Replace(target.Expr))
		}
	}
	if len(queries) < 20 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	return queries
}
