package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func TestTyposAndWrongTypesAreRefusedWithTheirPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		// want are parts of the message.
		want []string
	}{
		"an unknown value":                     {"hardwrae: nvml", []string{"hardwrae"}},
		"an unknown value in a group":          {"mig: {profile: all}", []string{"/mig", "profile"}},
		"a flag's name instead of the value's": {"mig: {allow-reset: true}", []string{"/mig", "allow-reset"}},
		"an unknown value two groups down":     {"agent: {logging: {level: 4}}", []string{"/agent/logging", "level"}},
		"an unknown class":                     {"deviceClasses: {gpus: {enabled: false}}", []string{"/deviceClasses", "gpus"}},
		"an unknown field of a toleration":     {"nodes: {tolerations: [{key: a, operater: Exists}]}", []string{"/nodes/tolerations/0", "operater"}},
		"an unknown resource":                  {"agent: {resources: {limits: {memroy: 1Gi}}}", []string{"/agent/resources/limits", "memroy"}},
		"hardware that is none":                {"hardware: nvlm", []string{"/hardware"}},
		"hardware without a model":             {"hardware: 'sim:'", []string{"/hardware"}},
		"an offer that is none":                {"offer: [shares]", []string{"/offer/0"}},
		"an offer as the flag has it":          {"offer: share,mig", []string{"/offer", "array"}},
		"an offer given twice":                 {"offer: [share, share]", []string{"/offer"}},
		"a number as a string":                 {"timeslice: {slots: '4'}", []string{"/timeslice/slots", "integer"}},
		"no slots":                             {"timeslice: {slots: 0}", []string{"/timeslice/slots"}},
		"a boolean as a string":                {"mps: {enabled: 'no'}", []string{"/mps/enabled", "boolean"}},
		"memory without a unit":                {"shares: {smallest: 1073741824}", []string{"/shares/smallest"}},
		"memory in a unit that is no whole Mi": {"shares: {smallest: 512Ki}", []string{"/shares/smallest"}},
		"less than all compute":                {"shares: {computeOvercommit: 0.5}", []string{"/shares/computeOvercommit"}},
		"a profile that is none":               {"mig: {profiles: [1g10gb]}", []string{"/mig/profiles"}},
		"a profile of an unknown suffix":       {"mig: {profiles: [1g.10gb+you]}", []string{"/mig/profiles"}},
		"profiles as the flag has them":        {"mig: {profiles: '1g.10gb,2g.20gb'}", []string{"/mig/profiles"}},
		"no profile":                           {"mig: {profiles: []}", []string{"/mig/profiles"}},
		"a mode that is none":                  {"mig: {mode: auto}", []string{"/mig/mode"}},
		"a relative folder":                    {"kubelet: {rootDir: var/lib/kubelet}", []string{"/kubelet/rootDir"}},
		"a driver root that is neither":        {"driver: {root: operator}", []string{"/driver/root"}},
		"a run folder too long for a socket":   {"supervisor: {runDir: /var/lib/kubelet/plugins/gpu-mps-supervisor}", []string{"/supervisor/runDir"}},
		"a duration without a unit":            {"agent: {reconcileInterval: 300}", []string{"/agent/reconcileInterval"}},
		"an update of nobody":                  {"agent: {updateStrategy: {maxSurge: 0}}", []string{"/agent/updateStrategy/maxSurge"}},
		"an update of more than all":           {"agent: {updateStrategy: {maxSurge: 120%}}", []string{"/agent/updateStrategy/maxSurge"}},
		"a label with a space":                 {"nodes: {withAnyLabel: ['nvidia.com/gpu.present = true']}", []string{"/nodes/withAnyLabel/0"}},
		"a pull policy that is none":           {"image: {pullPolicy: Sometimes}", []string{"/image/pullPolicy"}},
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

// As pkg/gpu reads them.
func TestProfilesOfEverySuffixAreTaken(t *testing.T) {
	const profiles = "[1g.10gb, 1g.10gb+me, 2g.48gb+me.all, 4g.96gb+gfx, 1g.24gb-me]"
	r := mustRender(t, cluster{}, "{mig: {profiles: "+profiles+"}, deviceClasses: {migProfiles: {profiles: "+profiles+"}}}")
	for _, class := range []string{"mig-1g.10gb.me", "mig-2g.48gb.me.all", "mig-4g.96gb.gfx", "mig-1g.24gb-me"} {
		find[resourceapi.DeviceClass](t, r, "DeviceClass", class)
	}
}

func TestAModelThatIsNotThereIsRefusedWithWhatThereIs(t *testing.T) {
	_, err := render(t, cluster{}, "{hardware: 'sim:ten.yaml', simulation: {models: {two.yaml: 'gpus: []'}}}")
	if err == nil || !strings.Contains(err.Error(), "ten.yaml") || !strings.Contains(err.Error(), "two.yaml") {
		t.Errorf("error %v, want one that names both models", err)
	}
}

// The schema and values.yaml describe the same tree: a value that the schema
// does not know could not be set, one that has no default would not be found.
func TestEveryValueHasADefaultAndASchema(t *testing.T) {
	c := load(t)
	var schema map[string]any
	if err := yaml.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
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

// optional are groups whose values need no default: Kubernetes has one.
func optional(path string) bool {
	return strings.HasSuffix(path, ".requests.") || strings.HasSuffix(path, ".limits.")
}
