// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func TestTyposAndWrongTypesAreRefusedWithTheirPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		// want are parts of the message.
		want []string
	}{
		"an unknown value":                     {"offre: [share]", []string{"offre"}},
		"a flag's name instead of the value's": {"mig: {allow-reset: true}", []string{"/mig", "allow-reset"}},
		"a model that is not built in":         {"simulation: {model: dgx-h10}", []string{"simulation.model", `"dgx-h10"`, "dgx-h100, dgx-h100-r615"}},
		"a registry with a scheme":             {"image: {registry: 'https://registry.example.com'}", []string{"image.registry", "without its scheme"}},
		"a digest without its algorithm":       {"agent: {image: {digest: 0123}}", []string{"/agent/image/digest"}},
		"a model that is a path":               {"simulation: {model: /models/ten.yaml}", []string{"/simulation/model"}},
		"simulated GPUs in all of the host":    {"simulation: {model: t4, dir: /}", []string{"/simulation/dir"}},
		"simulated GPUs and a driver":          {"{simulation: {model: t4}, driver: {root: /}}", []string{"driver.root is /,", "simulation.model is t4", "simulation.dir (/var/lib/gpu-sim)"}},
		"an offer that is none":                {"offer: [shares]", []string{"/offer/0"}},
		"an offer given twice":                 {"offer: [share, share]", []string{"/offer"}},
		"a number as a string":                 {"timeslice: {slots: '4'}", []string{"/timeslice/slots", "integer"}},
		"memory without a unit":                {"shares: {smallest: 1073741824}", []string{"/shares/smallest"}},
		"an attribute that is none":            {"attributes: [brand, colour]", []string{"/attributes/1", "'driverVersion'", "'computeEnforcement'"}},
		"profiles as the flag has them":        {"mig: {profiles: '1g.10gb,2g.20gb'}", []string{"/mig/profiles"}},
		"a layout that is not there":           {"mig: {layout: halves, layouts: '" + layouts("all-disabled: [{devices: all, mig-enabled: false}], thirds: [{devices: all, mig-enabled: false}]") + "'}", []string{`mig.layout: "halves"`, "all-disabled, thirds"}},
		"a layout without layouts":             {"mig: {layout: halves}", []string{`mig.layout: "halves"`, "none"}},
		"a layout of static MIG":               {"mig: {layout: halves, mode: static, layouts: '" + layouts("halves: [{devices: all, mig-enabled: false}]") + "'}", []string{"mig.layout", "mig.mode"}},
		"a label of static MIG":                {"mig: {configLabel: true, mode: static}", []string{"mig.configLabel", "mig.mode"}},
		"layouts that are not YAML":            {"mig: {layouts: '{'}", []string{"mig.layouts is not YAML"}},
		"a relative folder":                    {"kubelet: {rootDir: var/lib/kubelet}", []string{"/kubelet/rootDir"}},
		"a run folder too long for a socket":   {"supervisor: {runDir: /var/lib/kubelet/plugins/gpu-mps-supervisor}", []string{"/supervisor/runDir"}},
		"a duration without a unit":            {"agent: {reconcileInterval: 300}", []string{"/agent/reconcileInterval"}},
		"a room for less than 10s":             {"room: {enabled: true, timeout: 9s}", []string{"/room/timeout"}},
		"an update of no pod":                  {"agent: {updateStrategy: {maxSurge: 0}}", []string{"/agent/updateStrategy/maxSurge"}},
		"a label with a space":                 {"nodes: {withAnyLabel: ['nvidia.com/gpu.present = true']}", []string{"/nodes/withAnyLabel/0"}},
		"less shared memory than MPS needs":    {"supervisor: {shmSize: 15Mi}", []string{"/supervisor/shmSize"}},
		"a start longer than the agent waits":  {"supervisor: {startTimeout: 26s}", []string{"/supervisor/startTimeout"}},
		"exclusive GPUs without MPS":           {"{mps: {enabled: false, exclusiveCompute: true}}", []string{"mps.exclusiveCompute", "mps.enabled"}},
		"MIG's mode in a configuration":        {"nodeConfigs: {training: {mig: {mode: static}}}", []string{"/nodeConfigs/training/mig", "mode"}},
		"a configuration that no label names":  {"nodeConfigs: {'a b': {}}", []string{"invalid propertyName 'a b'"}},
		"a configuration's layout":             {"nodeConfigs: {training: {mig: {layout: halves}}}", []string{`nodeConfigs.training.mig.layout: "halves"`, "none"}},
		"seats of a configuration without MPS": {"{mps: {enabled: false}, nodeConfigs: {training: {offer: [seat]}}}", []string{"nodeConfigs.training.offer: seat needs mps.enabled"}},
		"more seats than MPS has clients":      {"seat: {seats: 49}", []string{"/seat/seats"}},
		"a label of the chart's own":           {"agent: {podLabels: {app.kubernetes.io/component: mine}}", []string{"app.kubernetes.io/component"}},
		"an annotation of the chart's own":     {"supervisor: {podAnnotations: {kubectl.kubernetes.io/default-container: mine}}", []string{"kubectl.kubernetes.io/default-container"}},
		"verbosities with a comment":           {"agent: {logging: {vmodule: 'a=1 # x'}}", []string{"/agent/logging/vmodule"}},
		"a tag with a comment":                 {"image: {tag: 'v1 # x'}", []string{"/image/tag"}},
		"a label of a monitor of the chart's":  {"monitoring: {labels: {app.kubernetes.io/name: mine}}", []string{"app.kubernetes.io/name"}},
		"a model of another format":            {"simulation: {models: {ten.json: ''}}", []string{"ten.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, cluster{}, tc.values)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %s: %v", want, err)
				}
			}
		})
	}
}

// layouts returns a file of layouts in one line.
func layouts(entries string) string { return "{version: v1, mig-configs: {" + entries + "}}" }

// The agent keeps its configuration if a file is wrong. Helm must not accept the file.
func TestLayoutsThatTheAgentWouldRefuse(t *testing.T) {
	const on = "devices: all, mig-enabled: true"
	for name, tc := range map[string]struct{ layouts, want string }{
		"another version":         {"{version: v2, mig-configs: {a: []}}", "mig.layouts: version: v2; want v1"},
		"an unknown field":        {"{version: v1, configs: {}}", `mig.layouts: unknown field "configs"`},
		"no layouts":              {"{version: v1}", "mig.layouts: no mig-configs"},
		"two documents":           {"version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}\n---\nversion: v1", "more than one YAML document"},
		"no entry":                {layouts("a: []"), "mig.layouts: a: want a list of at least one entry"},
		"an entry as a map":       {layouts("a: {" + on + "}"), "mig.layouts: a: want a list"},
		"a misspelled field":      {layouts("a: [{devices: all, mig-enabeld: true}]"), `mig.layouts: a, entry 1: unknown field "mig-enabeld"; known are: device-filter`},
		"no devices":              {layouts("a: [{mig-enabled: false}]"), "entry 1: devices: want all"},
		"devices that are a word": {layouts("a: [{devices: some, mig-enabled: false}]"), "devices: want all"},
		"a negative index":        {layouts("a: [{devices: [-1], mig-enabled: false}]"), "devices: -1 is not an index"},
		"a mode that is a word":   {layouts("a: [{devices: all, mig-enabled: yep}]"), "mig-enabled: want true or false"},
		"no MIG devices":          {layouts("a: [{" + on + "}]"), "mig-devices: want profiles with their counts"},
		"MIG devices without MIG": {layouts("a: [{devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}}]"), "mig-devices, and mig-enabled is false"},
		"a misspelled profile":    {layouts("a: [{" + on + ", mig-devices: {1g10gb: 7}}]"), `a, entry 1: "1g10gb" is not a MIG profile`},
		"a compute instance":      {layouts("a: [{" + on + ", mig-devices: {1c.2g.20gb: 1}}]"), "compute instances such as 1c.2g.20gb are not supported"},
		"a count that is a word":  {layouts("a: [{" + on + ", mig-devices: {1g.10gb: seven}}]"), "seven MIG devices 1g.10gb; want a number"},
		"a negative count":        {layouts("a: [{" + on + ", mig-devices: {1g.10gb: -1}}]"), "-1 MIG devices 1g.10gb"},
		"too many MIG devices":    {layouts("a: [{" + on + ", mig-devices: {1g.10gb: 65}}]"), "65 MIG devices 1g.10gb"},
		"counts of nothing":       {layouts("a: [{" + on + ", mig-devices: {1g.10gb: 0}}]"), "all counts of mig-devices are 0"},
		"a filter without an ID":  {layouts("a: [{device-filter: H100, " + on + ", mig-devices: {1g.10gb: 7}}]"), "device-filter H100; want the IDs"},
		"all GPUs twice":          {layouts("a: [{devices: all, mig-enabled: false}, {devices: all, mig-enabled: false}]"), "a, entry 2: a GPU is of another entry too"},
		"one GPU twice":           {layouts("a: [{devices: [0, 1], mig-enabled: false}, {devices: [1], mig-enabled: false}]"), "a, entry 2: GPU 1 is of another entry too"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := yaml.Marshal(map[string]any{"mig": map[string]string{"layouts": tc.layouts}})
			must(t, err)
			if _, err := render(t, cluster{}, string(values)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestLayoutsThatHelmAccepts(t *testing.T) {
	for _, accepted := range []string{
		"", "\n", "---\n" + layouts("a: [{devices: all, mig-enabled: false}]"),
		layouts("a: [{devices: [0, 1], mig-enabled: true, mig-devices: {1g.10gb: 7, 1g.10gb+me: 0}}, {devices: [2], mig-enabled: true, mig-devices: {}}, {devices: [3], mig-enabled: false, mig-devices: {}}]"),
		layouts(`a: [{device-filter: ["0x233010DE", "0x233010DE:0x16C110DE"], devices: all, mig-enabled: true, mig-devices: {1g.10gb+me.all: 1}}, {device-filter: "0x20B210DE", devices: all, mig-enabled: false}]`),
	} {
		values, err := yaml.Marshal(map[string]any{"mig": map[string]string{"layouts": accepted}})
		must(t, err)
		if _, err := render(t, cluster{}, string(values)); err != nil {
			t.Errorf("%s: %v", accepted, err)
		}
	}
}

func TestValuesAreRenderedAsTheyAreGiven(t *testing.T) {
	r := mustRender(t, cluster{}, `
driverName: "007"
agent: {serviceAccount: {name: "007"}}
priority: {className: "on", quota: true}
image: {pullSecrets: ["1e3"], tag: "1.10"}
nodes: {withAnyLabel: ["123"], withoutLabels: ["456", "789=yes"]}
timeslice: {slots: 10000}
mps: {serverMemory: "0"}
shares: {smallest: 1Mi}
test: {deviceClass: "5"}
policies: {classes: null}
supervisor: {image: {digest: "sha256:`+strings.Repeat("0", 64)+`"}}
`)
	supervisor := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-supervisor").Spec.Template.Spec
	if image := supervisor.Containers[0].Image; !strings.HasSuffix(image, "gpu-mps-supervisor:1.10@sha256:"+strings.Repeat("0", 64)) {
		t.Errorf("image %s", image)
	}
	agent := find[appsv1.DaemonSet](t, r, "DaemonSet", "gpu-dra-driver-agent").Spec.Template.Spec
	if agent.ServiceAccountName != "007" || agent.PriorityClassName != "on" || agent.ImagePullSecrets[0].Name != "1e3" {
		t.Errorf("account %q, priority %q, secrets %v", agent.ServiceAccountName, agent.PriorityClassName, agent.ImagePullSecrets)
	}
	find[corev1.ServiceAccount](t, r, "ServiceAccount", "007")
	terms := agent.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if got := terms[0].MatchExpressions; got[0].Key != "123" || got[1].Key != "456" || got[2].Key != "789" || got[2].Values[0] != "yes" {
		t.Errorf("nodes with %v", got)
	}
	if got := argsOf(agent.Containers[0]); got["timeslice-slots"] != "10000" || got["smallest-share"] != "1Mi" {
		t.Errorf("--timeslice-slots=%s --smallest-share=%s", got["timeslice-slots"], got["smallest-share"])
	}
	if got := find[corev1.ResourceQuota](t, r, "ResourceQuota", "gpu-dra-driver").Spec.ScopeSelector.MatchExpressions[0].Values[0]; got != "on" {
		t.Errorf("a quota for %s", got)
	}
	find[rbacv1.ClusterRole](t, r, "ClusterRole", "gpu-dra-driver-agent")
	find[resourceapi.DeviceClass](t, r, "DeviceClass", "mps.nvidia.com")
	find[resourceapi.ResourceClaimTemplate](t, r, "ResourceClaimTemplate", "gpu-dra-driver-test")
}

// As pkg/gpu reads them.
func TestProfilesOfEverySuffixAreTaken(t *testing.T) {
	const profiles = "[1g.10gb, 1g.10gb+me, 2g.48gb+me.all, 4g.96gb+gfx, 1g.24gb-me]"
	r := mustRender(t, cluster{}, "{mig: {profiles: "+profiles+"}, deviceClasses: {migProfiles: {profiles: "+profiles+"}}}")
	for _, class := range []string{"mig-1g.10gb.me", "mig-2g.48gb.me.all", "mig-4g.96gb.gfx", "mig-1g.24gb-me"} {
		find[resourceapi.DeviceClass](t, r, "DeviceClass", class)
	}
}

func TestTheChartKnowsTheBuiltInModels(t *testing.T) {
	models, err := filepath.Glob("../../simulator/nvmlsim/models/*.yaml")
	recorded, err2 := filepath.Glob("../../simulator/nvmlsim/models/recorded/*.yaml")
	if err != nil || err2 != nil || len(models) < 10 || len(recorded) == 0 {
		t.Fatalf("models: %v %v: %v %v", models, recorded, err, err2)
	}
	var names []string
	for _, file := range append(models, recorded...) {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	slices.Sort(names)
	_, err = render(t, cluster{}, "simulation: {model: unknown}")
	if want := "want one of " + strings.Join(names, ", ") + ", or"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestAMissingModelIsRefusedWithTheModelsThatExist(t *testing.T) {
	_, err := render(t, cluster{}, "simulation: {model: ten.yaml, models: {two.yaml: 'gpus: []'}}")
	if err == nil || !strings.Contains(err.Error(), "ten.yaml") || !strings.Contains(err.Error(), "two.yaml") {
		t.Errorf("error %v, want one that names both models", err)
	}
}

// The schema and values.yaml describe the same tree: a value that the schema
// does not know could not be set, one that has no default would not be found.
func TestEveryValueHasADefaultAndASchema(t *testing.T) {
	c := load(t)
	var schema map[string]any
	must(t, yaml.Unmarshal(c.Schema, &schema))
	compareWithSchema(t, schema, schema, c.Values, "")
}

func compareWithSchema(t *testing.T, all, schema map[string]any, values map[string]any, path string) {
	t.Helper()
	if schema["additionalProperties"] != false {
		t.Errorf("the schema lets unknown values of %q pass", path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		if _, ok := values[name]; !ok && path+name != "global" && !optional(path) {
			t.Errorf("%s%s has no default in values.yaml", path, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s%s is not in the schema", path, name)
			continue
		}
		if ref, ok := property["$ref"].(string); ok {
			property = all["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		if group, ok := values[name].(map[string]any); ok && property["properties"] != nil {
			compareWithSchema(t, all, property, group, fmt.Sprintf("%s%s.", path, name))
		}
	}
}

// optional are groups whose values need no default: Kubernetes has one, or
// without one there is no limit.
func optional(path string) bool {
	return strings.HasSuffix(path, ".requests.") || strings.HasSuffix(path, ".limits.") || strings.HasPrefix(path, "policies.classes.")
}
