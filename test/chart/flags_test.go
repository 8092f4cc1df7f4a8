// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// program is one that the chart runs, and where its --help is kept.
type program struct {
	// workload is a DaemonSet, or with enabled, the values for it, a Deployment.
	workload, container, help, enabled string
	// without are flags that no value sets, and why.
	without map[string]string
	// differs are flags whose default in values.yaml is not the program's, and why.
	differs map[string]string
}

func programs() []program {
	return []program{
		{
			workload: "gpu-dra-driver-agent", container: "agent", help: "../../cmd/gpu-kubelet-plugin/testdata/help.txt",
			without: map[string]string{
				"kubeconfig":   "a pod has a service account",
				"print-slices": "ends at once; kubectl exec can run it",
			},
			differs: map[string]string{
				"driver-root":      "where the container has it",
				"dev-root":         "where the container has it",
				"host-driver-root": "the node's",
				"host-dev-root":    "the node's",
				"node-name":        "the pod's",
				"node-configs":     "a key of the chart's ConfigMap",
				"mig-layouts":      "a key of the chart's ConfigMap",
				"pod-uid":          "the pod's",
				"daemon-set":       "the chart's",
				"viewer-account":   "an account of the chart",
			},
		},
		{
			workload: "gpu-dra-driver-supervisor", container: "supervisor", help: "../../cmd/gpu-mps-supervisor/testdata/help.txt",
			without: map[string]string{},
			differs: map[string]string{
				"mount-namespace": "a container's own goes with it",
				"cgroup":          "a container's own goes with it",
				"socket":          "the agent and the probe need the same value",
			},
		},
		{
			workload: "gpu-dra-driver-room", container: "room", help: "../../cmd/gpu-room/testdata/help.txt", enabled: "room: {enabled: true}",
			without: map[string]string{"kubeconfig": "a pod has a service account"},
			differs: map[string]string{"namespace": "the release's"},
		},
	}
}

func TestEveryFlagOfTheProgramsIsAValueAndNoOther(t *testing.T) {
	for _, p := range programs() {
		t.Run(p.container, func(t *testing.T) {
			// Simulated GPUs have a flag that real ones do not have.
			set := map[string]string{}
			for _, values := range []string{valuesFile(t, "sim.yaml"), valuesFile(t, "mig-timeslice.yaml"), valuesFile(t, "every-value.yaml")} {
				maps.Copy(set, p.args(t, values))
			}
			known := p.flags(t)
			for _, flag := range slices.Sorted(maps.Keys(known)) {
				if _, ok := set[flag]; !ok && p.without[flag] == "" {
					t.Errorf("no value of the chart sets --%s", flag)
				}
			}
			for _, flag := range slices.Sorted(maps.Keys(set)) {
				if _, ok := known[flag]; !ok {
					t.Errorf("the chart sets --%s, which %s does not know", flag, p.help)
				}
			}
			for _, flag := range slices.Sorted(maps.Keys(p.without)) {
				if _, ok := known[flag]; !ok {
					t.Errorf("--%s needs no excuse any more", flag)
				}
			}
		})
	}
}

func TestDefaultsOfTheChartEqualThoseOfThePrograms(t *testing.T) {
	for _, p := range programs() {
		t.Run(p.container, func(t *testing.T) {
			known := p.flags(t)
			for flag, value := range p.args(t, "") {
				if p.differs[flag] != "" {
					continue
				}
				if got, want := canonical(value), canonical(known[flag]); got != want {
					t.Errorf("--%s is %q by default in the chart, and %q in the program", flag, value, known[flag])
				}
			}
		})
	}
}

// args are the arguments of the program for these values. The last of a name wins,
// as it does for the program.
func (p program) args(t *testing.T, values string) map[string]string {
	t.Helper()
	set := map[string]string{}
	for _, arg := range p.container0(t, values).Args {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok || !strings.HasPrefix(arg, "--") {
			t.Fatalf("argument %q is not --NAME=VALUE", arg)
		}
		set[name] = value
	}
	return set
}

func (p program) container0(t *testing.T, values string) corev1.Container {
	t.Helper()
	var pod corev1.PodSpec
	if p.enabled == "" {
		pod = find[appsv1.DaemonSet](t, mustRender(t, cluster{}, values), "DaemonSet", p.workload).Spec.Template.Spec
	} else {
		if !strings.Contains(values, "\nroom:") {
			values += "\n" + p.enabled
		}
		pod = find[appsv1.Deployment](t, mustRender(t, cluster{}, values), "Deployment", p.workload).Spec.Template.Spec
	}
	for _, c := range pod.Containers {
		if c.Name == p.container {
			return c
		}
	}
	t.Fatalf("%s has no container %s", p.workload, p.container)
	return corev1.Container{}
}

var (
	flagLine    = regexp.MustCompile(`^ {2,6}(?:-\w, )?--([a-z0-9-]+)`) // a text is indented further
	defaultText = regexp.MustCompile(`\(default "?([^")]*)"?\)\s*$`)
)

// flags are the flags in the program's --help, with their defaults.
func (p program) flags(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(p.help)
	must(t, err)
	_, all, _ := strings.Cut(string(text), "\nUsage:\n")
	own, _, _ := strings.Cut(all, "\nUsage:\n") // a command of its own may follow
	usage, name := map[string]string{}, ""
	for line := range strings.Lines(own) {
		if found := flagLine.FindStringSubmatch(line); found != nil {
			name = found[1]
			usage[name] = ""
			continue
		}
		if strings.TrimSpace(line) == "" || !strings.HasPrefix(line, " ") {
			name = ""
		}
		if name != "" {
			usage[name] += " " + strings.TrimSpace(line)
		}
	}
	if len(usage) == 0 {
		t.Fatalf("%s names no flags", p.help)
	}
	for name, text := range usage {
		usage[name] = ""
		if found := defaultText.FindStringSubmatch(text); found != nil {
			usage[name] = found[1]
		}
	}
	return usage
}

// canonical makes values comparable that mean the same.
func canonical(value string) string {
	if value == "false" || value == "0" {
		return "" // pflag names no default for these
	}
	if d, err := time.ParseDuration(value); err == nil {
		return fmt.Sprint(d)
	}
	return value
}
