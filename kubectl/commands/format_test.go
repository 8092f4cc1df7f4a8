// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// varied returns a cluster with GPUs that are shared, cut, time-sliced and sick.
func varied(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share.timeslice", "b=mixed-a30-l40s mig")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	w.Hold("a", "slot", "class=timeslice.nvidia.com")
	w.Hold("b", "part", "class=mig-1g.6gb")
	w.Taint("gpu-18-00", "xid-79")
	w.SetTaintTimes(metav1.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	fleettest.Report(t, w.Claims[0], &v1alpha1.ShareData{Strategy: v1alpha1.StrategyMPS, MemoryEnforcement: "cooperative", ComputeEnforcement: "cooperative"})
	return w
}

// Programs read these lists: a change of a field is a new version.
func TestListsForPrograms(t *testing.T) {
	client := installed(t, varied(t))
	for name, args := range map[string][]string{
		"gpus": {"get"}, "holders": {"who", "-A"}, "usage": {"usage"}, "free": {"free", "gpu.nvidia.com", "mps.nvidia.com", "--memory", "2Gi"}, "topology": {"topo", "a"},
	} {
		out, problems := run(t, client, append(args, "-o", "yaml")...)
		// The topology has no agent that counts links.
		if problems != "" && name != "topology" {
			t.Errorf("%s: %s", name, problems)
		}
		files.Golden(t, "list-"+name+".yaml", []byte(out))
	}
}

// Programs read these objects: a change of a field is a new version.
func TestObjectsForPrograms(t *testing.T) {
	sick := running(t)
	taint(sick, "gpu-18-00", resourceapi.DeviceTaint{Key: v1alpha1.TaintUnhealthy, Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoSchedule})
	sick.SetTaintTimes(metav1.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	app := manifest(t, template+podsOf("Deployment", "replicas: 3,")+podsOf("Job", "parallelism: 1,"))
	for name, tc := range map[string]struct {
		client kubernetes.Interface
		args   []string
	}{
		"explain-running": {server(sick), []string{"explain", "half", "-n", "default"}},
		"explain-sick":    {server(sick), []string{"explain", "claim/whole", "-n", "default"}},
		"explain-pending": {server(waiting(t)), []string{"explain", "pending", "-n", "default", "--nodes", "1"}},
		"plan":            {server(sick), []string{"plan", "-f", app, "-n", "default"}},
	} {
		out, _ := run(t, tc.client, append(tc.args, "-o", "yaml")...)
		files.Golden(t, "object-"+name+".yaml", withoutSentences(t, out))
	}
}

// withoutSentences replaces the sentences, which are not for programs.
func withoutSentences(t *testing.T, text string) []byte {
	var object any
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	var replaced func(any) any
	replaced = func(value any) any {
		switch v := value.(type) {
		case string:
			if strings.Count(v, " ") > 1 {
				return "a sentence"
			}
		case []any:
			for i := range v {
				v[i] = replaced(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = replaced(v[name])
			}
		}
		return value
	}
	out, err := yaml.Marshal(replaced(object))
	require.NoError(t, err)
	return out
}

func TestFindingsForPrograms(t *testing.T) {
	findings := []doctor.Finding{
		{Check: "swap", Code: "swap-on", Object: "node a", State: doctor.Warning, Found: "8Gi of swap", Meaning: "m", Remedy: "r", Read: "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/findings.md#swap-on"},
		{Check: "swap", Code: "swap-on", Object: "node b", State: doctor.Warning, Found: "8Gi of swap", Meaning: "m", Remedy: "r", Read: "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/admin/findings.md#swap-on"},
		{Check: "ecc", Code: "ecc-off", Object: "node a", State: doctor.Warning, Found: "off", Muted: true},
		{Check: "server", Object: "cluster", State: doctor.OK, Found: "v1.37.1"},
	}
	print := func(format string, findings ...doctor.Finding) string {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		o := &options{IOStreams: streams, output: format, width: func() int { return 0 }}
		require.NoError(t, o.checkOutput())
		require.NoError(t, o.printFindings(findings, false))
		return out.String()
	}
	files.Golden(t, "list-findings.yaml", []byte(print("yaml", findings...)))
	if got, want := print("jsonpath={.kind} {.items[*].code}", findings...), "FindingList swap-on swap-on ecc-off"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutputFormatsOfKubectl(t *testing.T) {
	client := installed(t, varied(t))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"JSONPath":              {[]string{"get", "-o", "jsonpath={range .items[?(@.health.state=='tainted')]}{.name} {.health.reasons[0].code}{'\\n'}{end}"}, "gpu-18-00 xid-79\n"},
		"a path":                {[]string{"get", "-o", "jsonpath=.kind"}, "GPUList"},
		"JSONPath of an object": {[]string{"explain", "half", "-n", "default", "-o", "jsonpath={.kind} {.outcome}"}, "Explanation waits"},
	} {
		if out, problems := run(t, client, tc.args...); out+problems != tc.want {
			t.Errorf("%s: got %q, want %q", name, out+problems, tc.want)
		}
	}
}

// A mistake in a flag is found before the cluster is read.
func TestOutputFormatsAreCheckedFirst(t *testing.T) {
	for format, want := range map[string]string{
		"tabel":            "--output tabel: invalid: want wide, json, yaml or jsonpath=TEMPLATE",
		"name":             "--output name: invalid: want wide",
		"json=x":           "--output json=x: invalid: want wide",
		"jsonpath={.items": "--output jsonpath={.items: invalid: unclosed action",
	} {
		connect := func(clientcmd.ClientConfig) (kubernetes.Interface, error) {
			t.Errorf("%s: the cluster is read", format)
			return nil, errors.New("no cluster")
		}
		if _, problems, status := runBy(t, kubeconfig(t), connect, "get", "-o", format); status != 1 || !strings.HasPrefix(problems, "Error: "+want) {
			t.Errorf("%s: status %d, %s", format, status, problems)
		}
	}
}

func TestRowsAreOrderedByAColumn(t *testing.T) {
	client := server(varied(t))
	order := func(args ...string) string {
		out, problems := run(t, client, append(args, "-o", "jsonpath={.items[*].name}")...)
		return out + problems
	}
	// Half of gpu-18-00 is promised, and one of four slots of gpu-af-00.
	if got, want := order("get", "a", "--sort-by", "compute"), "gpu-3b-00 gpu-86-00 gpu-af-00 gpu-18-00"; got != want {
		t.Errorf("by compute: got %s, want %s", got, want)
	}
	if got, want := order("get", "a", "--sort-by", "memory"), "gpu-3b-00 gpu-86-00 gpu-af-00 gpu-18-00"; got != want {
		t.Errorf("by memory: got %s, want %s", got, want)
	}
	if _, problems := run(t, client, "get", "--sort-by", "color"); !strings.Contains(problems, "--sort-by color: invalid: want a column: NODE, GPU, MODEL") {
		t.Errorf("another column: %s", problems)
	}
}

func TestNodesAreSelectedByTheirLabels(t *testing.T) {
	w := varied(t)
	w.Nodes[0].Labels = map[string]string{"zone": "east"}
	client := server(w)
	for name, tc := range map[string]struct {
		args     []string
		out, not string
	}{
		"get":   {[]string{"get", "-l", "zone=east"}, "gpu-18-00", "\nb "},
		"who":   {[]string{"who", "-A", "--selector", "zone!=east"}, "part", "half"},
		"usage": {[]string{"usage", "-l", "zone=east"}, "default     2 ", "default     3 "},
		"free":  {[]string{"free", "gpu.nvidia.com", "-l", "zone=east"}, " a ", " b "},
		"none":  {[]string{"get", "-l", "zone=west"}, "Error: no node with the labels zone=west publishes GPUs", "gpu-"},
		"wrong": {[]string{"get", "-l", "zone in"}, "Error: --selector zone in: invalid: ", "gpu-"},
	} {
		if out, problems := run(t, client, tc.args...); !strings.Contains(out+problems, tc.out) || strings.Contains(out, tc.not) {
			t.Errorf("%s: got %s%s", name, out, problems)
		}
	}
	forbid(client, "nodes", false)
	if out, problems := run(t, client, "get", "-l", "zone=east"); out != "" || !strings.Contains(problems, "you have no right to list nodes, which have the labels") {
		t.Errorf("without the right: got %s%s", out, problems)
	}
}

func TestNothingToPrintIsASentence(t *testing.T) {
	w := shared(t)
	empty := fleettest.New(t, "a=t4 share")
	none := fleettest.New(t)
	for name, tc := range map[string]struct {
		w    *fleettest.World
		args []string
		want string
	}{
		"another namespace":  {w, []string{"who", "-n", "team"}, "Error: no claim of the namespace team holds a device, claims of other namespaces do: see them with --all-namespaces (-A)\n"},
		"no claim":           {empty, []string{"who", "-n", "team"}, "Error: no claim of any namespace holds a device\n"},
		"no claim, everyone": {empty, []string{"who", "-A"}, "Error: no claim holds a device\n"},
		"no GPU":             {none, []string{"get"}, "Error: no node publishes GPUs of gpu.nvidia.com: kubectl gpu doctor finds the reason\n"},
		"no usage":           {empty, []string{"usage"}, "Error: no claim holds a device\n"},
		"nothing free":       {none, []string{"free"}, "Error: no claim of these classes fits on any node: kubectl gpu shows the holders' amounts, and kubectl gpu explain the reasons for a pod\n"},
		"JSON":               {none, []string{"get", "-o", "jsonpath={.kind}{.items}"}, "GPUList[]"},
	} {
		if out, problems := run(t, installed(t, tc.w), tc.args...); out+problems != tc.want {
			t.Errorf("%s: got %q, want %q", name, out+problems, tc.want)
		}
	}
	two := fleettest.New(t, "a=t4 share", "b=t4 share")
	two.Nodes[0].Labels = map[string]string{"zone": "east"}
	two.Hold("b", "whole", "")
	if out, problems := run(t, installed(t, two), "usage", "-l", "zone=east"); out+problems != "Error: no claim holds a device on these nodes\n" {
		t.Errorf("usage of other nodes: %s%s", out, problems)
	}
	client := installed(t, w)
	forbid(client, "resourceclaims", true)
	for _, args := range [][]string{{"who", "-A", "-n", "team"}, {"usage", "-n", "team"}} {
		if _, problems := run(t, client, args...); !strings.Contains(problems, "Error: no claim that you may list holds a device\n") {
			t.Errorf("%v without the right: %s", args, problems)
		}
	}
	if _, problems := run(t, client, "who", "-n", "team"); !strings.Contains(problems, "no claim of the namespace team holds a device; name another namespace with --namespace") {
		t.Errorf("without the right: %s", problems)
	}
}

func TestMistypedNamesHaveSuggestions(t *testing.T) {
	w := fleettest.New(t, "gpu-node-1=t4 share")
	app := manifest(t, template+podsOf("Pod", ""))
	for want, args := range map[string][]string{
		"node gpu-nod-1: not found: did you mean gpu-node-1?":              {"get", "gpu-nod-1"},
		"node GPU-NODE-1: not found: did you mean gpu-node-1?":             {"topo", "GPU-NODE-1"},
		"node other: not found: it publishes no devices of gpu.nvidia.com": {"who", "other"},
		"class mps.nvidia.co: not found: did you mean mps.nvidia.com?":     {"free", "mps.nvidia.co"},
		"class x: not found: kubectl get deviceclasses lists the classes":  {"free", "x"},
		"node gpu-node-10: not found: did you mean gpu-node-1?":            {"get", "gpu-node-1", "gpu-node-10"},
		"node gpu-node-2: not found: did you mean gpu-node-1?":             {"doctor", "gpu-node-2"},
		"model dgx-h10: not found: did you mean dgx-h100?":                 {"plan", "-f", app, "--nodes", "2", "--model", "dgx-h10"},
	} {
		if out, problems := run(t, server(w), args...); out != "" || problems != "Error: "+want+"\n" {
			t.Errorf("%v: got %q, %q, want %q", args, out, problems, want)
		}
	}
}
