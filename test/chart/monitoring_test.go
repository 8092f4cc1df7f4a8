// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// monitor has the fields of the operator's PodMonitor and ServiceMonitor that the chart sets.
type monitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel            string               `json:"jobLabel"`
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []endpoint           `json:"podMetricsEndpoints"`
		Endpoints           []endpoint           `json:"endpoints"`
	} `json:"spec"`
}

type endpoint struct {
	Port        string       `json:"port"`
	Path        string       `json:"path"`
	Interval    string       `json:"interval"`
	HonorLabels bool         `json:"honorLabels"`
	Relabelings []relabeling `json:"relabelings"`
}

type relabeling struct {
	SourceLabels []string `json:"sourceLabels"`
	TargetLabel  string   `json:"targetLabel"`
}

// prometheusRule is the operator's object around a file of rules.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              any `json:"spec"`
}

func chartFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/" + name)
	must(t, err)
	return string(text)
}

func TestPrometheusFindsTheAgents(t *testing.T) {
	want := []endpoint{{
		Port: "http", Path: "/metrics", Interval: "1m", HonorLabels: true,
		Relabelings: []relabeling{{SourceLabels: []string{"__meta_kubernetes_pod_node_name"}, TargetLabel: "node"}},
	}}
	for kind, value := range map[string]string{"PodMonitor": "podMonitor", "ServiceMonitor": "serviceMonitor"} {
		r := mustRender(t, cluster{}, "monitoring: {"+value+": {enabled: true}, interval: 1m, labels: {release: prometheus}}")
		m := find[monitor](t, r, kind, "gpu-dra-driver-agent")
		if diff := cmp.Diff(want, append(m.Spec.PodMetricsEndpoints, m.Spec.Endpoints...)); diff != "" {
			t.Errorf("endpoints of the %s (-want +got):\n%s", kind, diff)
		}
		if m.Labels["release"] != "prometheus" || m.Spec.JobLabel != "app.kubernetes.io/name" {
			t.Errorf("%s with the labels %v and the job of %s", kind, m.Labels, m.Spec.JobLabel)
		}
		agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent").Spec.Template
		for key, value := range m.Spec.Selector.MatchLabels {
			if agent.Labels[key] != value {
				t.Errorf("the %s selects %s=%s, the agent has %q", kind, key, value, agent.Labels[key])
			}
		}
		if kind == "PodMonitor" {
			continue
		}
		service := find[corev1.Service](t, r, "Service", "gpu-dra-driver-agent")
		if diff := cmp.Diff(m.Spec.Selector.MatchLabels, service.Spec.Selector); diff != "" {
			t.Errorf("the Service selects other pods (-want +got):\n%s", diff)
		}
		if s := service.Spec; s.ClusterIP != corev1.ClusterIPNone || !s.PublishNotReadyAddresses || s.Ports[0].Name != "http" || s.Ports[0].TargetPort.String() != "http" {
			t.Errorf("the Service: %+v", s)
		}
	}
}

// For Prometheus each port of a pod is a target, and each container without a port is one too. A target
// that is not the agent's port would be an agent that is down.
func TestTheScrapeOfTheDocumentReadsTheAgentOnly(t *testing.T) {
	text, err := os.ReadFile("../../docs/admin/monitoring.md")
	must(t, err)
	fence := regexp.MustCompile("(?ms)^```yaml\n# prometheus.yml\n(.*?)^```$").FindStringSubmatch(string(text))
	if fence == nil {
		t.Fatal("the document has no prometheus.yml")
	}
	var config struct {
		Jobs []struct {
			Rules []struct {
				Sources []string `json:"source_labels"`
				Regex   string   `json:"regex"`
				Action  string   `json:"action"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	must(t, yaml.Unmarshal([]byte(fence[1]), &config))
	// keeps reports whether Prometheus reads a target with these labels.
	keeps := func(meta map[string]string) bool {
		for _, rule := range config.Jobs[0].Rules {
			var values []string
			for _, source := range rule.Sources {
				values = append(values, meta[source])
			}
			if rule.Action == "keep" && !regexp.MustCompile("^(?:"+rule.Regex+")$").MatchString(strings.Join(values, ";")) {
				return false
			}
		}
		return true
	}
	r := mustRender(t, cluster{}, "{simulation: {model: t4}, room: {enabled: true}}")
	agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent").Spec.Template
	agent.Spec.Containers = append(agent.Spec.Containers, corev1.Container{Name: "sidecar"},
		corev1.Container{Name: "proxy", Ports: []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090}}})
	var read []string
	for _, pod := range []corev1.PodTemplateSpec{
		agent, find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-supervisor").Spec.Template,
		find[appsv1.Deployment](t, r, "Deployment", "gpu-dra-driver-room").Spec.Template,
	} {
		component := pod.Labels["app.kubernetes.io/component"]
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			ports := c.Ports
			if len(ports) == 0 {
				ports = []corev1.ContainerPort{{}}
			}
			for _, port := range ports {
				if keeps(map[string]string{"__meta_kubernetes_pod_label_app_kubernetes_io_component": component, "__meta_kubernetes_pod_container_port_name": port.Name}) {
					read = append(read, component+" "+c.Name+" "+port.Name)
				}
			}
		}
	}
	if diff := cmp.Diff([]string{"agent agent http"}, read); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// A Service needs no CustomResourceDefinition, and is the same for all readers.
func TestTheServiceAloneNeedsNoOperator(t *testing.T) {
	r := mustRender(t, cluster{}, "monitoring: {service: {enabled: true}}")
	withMonitor := mustRender(t, cluster{}, "monitoring: {serviceMonitor: {enabled: true}}")
	want, got := find[corev1.Service](t, withMonitor, "Service", "gpu-dra-driver-agent"), find[corev1.Service](t, r, "Service", "gpu-dra-driver-agent")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the Service (-with a ServiceMonitor +alone):\n%s", diff)
	}
	for _, m := range r.manifests {
		if strings.Contains(m, "monitoring.coreos.com") {
			t.Errorf("rendered:\n%s", m)
		}
	}
}

func TestAgentsAreNotReadTwice(t *testing.T) {
	_, err := render(t, cluster{}, "monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}")
	if err == nil || !strings.Contains(err.Error(), "Enable one") {
		t.Errorf("error %v, want one that says to enable one", err)
	}
}

func TestRulesAreTheFileWithOtherRunbooks(t *testing.T) {
	const runbooks = "https://wiki.example.com/gpus"
	r := mustRender(t, cluster{}, "monitoring: {rules: {enabled: true, runbooks: '"+runbooks+"'}}")
	file := strings.ReplaceAll(chartFile(t, "files/rules.yaml"), "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/monitoring.md", runbooks)
	if !strings.Contains(file, "runbook_url: "+runbooks+"#gpuagentdown\n") {
		t.Fatal("the file has no link to the runbook of GPUAgentDown")
	}
	var want any
	must(t, yaml.Unmarshal([]byte(file), &want))
	if diff := cmp.Diff(want, find[prometheusRule](t, r, "PrometheusRule", "gpu-dra-driver").Spec); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestTheDashboardIsTheFile(t *testing.T) {
	r := mustRender(t, cluster{}, "monitoring: {dashboard: {enabled: true, annotations: {grafana_folder: GPUs}}}")
	c := find[corev1.ConfigMap](t, r, "ConfigMap", "gpu-dra-driver-dashboard")
	if got := c.Data["gpu-dra-driver.json"]; got != strings.TrimSpace(chartFile(t, "files/dashboard.json")) || !json.Valid([]byte(got)) {
		t.Errorf("the dashboard:\n%s", got)
	}
	if c.Labels["grafana_dashboard"] != "1" || c.Annotations["grafana_folder"] != "GPUs" {
		t.Errorf("labels %v, annotations %v", c.Labels, c.Annotations)
	}
}
