// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

const examples = "../../../api/gpu/v1alpha1/testdata"

// Beyond the policy are only: a field given twice in JSON, of which CEL sees one;
// an unknown field that is null; a device named twice among more than 32.
func TestExamplesOfParametersGetTheVerdictOfTheAgent(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		example := filepath.Base(filepath.Dir(file)) + "/" + strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(example, func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			var document map[string]any
			must(t, yaml.Unmarshal(text, &document))
			agent, policy := verdicts(t, document)
			switch {
			case agent == "" && policy != "":
				t.Errorf("the policy refuses what the agent takes: %s", policy)
			case agent != "" && policy == "":
				t.Errorf("the policy admits what the agent refuses: %s", agent)
			}
			if policy != "" && !strings.Contains(policy, "opaque.parameters") {
				t.Errorf("the policy names no field: %s", policy)
			}
		})
	}
}

// Whatever fields and values are put together, the policy and the agent agree.
func TestAnyParametersGetTheVerdictOfTheAgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := documents().Draw(t, "document")
		agent, policy := verdicts(t, document)
		if (agent == "") != (policy == "") {
			t.Fatalf("%s\nthe agent says %q, the policy %q", text(document), agent, policy)
		}
		if strings.Contains(policy, "resulted in error") || strings.Contains(policy, "failed expression") {
			t.Fatalf("%s\nthe policy does not name the mistake: %s", text(document), policy)
		}
	})
}

type tester interface {
	Context() context.Context
	Helper()
	Fatal(args ...any)
}

// verdicts returns the messages about parameters; empty if they are valid.
func verdicts(t tester, document map[string]any) (agent, policy string) {
	t.Helper()
	if _, err := v1alpha1.Decode([]byte(text(document))); err != nil {
		agent = err.Error()
	}
	policy, err := refusal(world.try(t.Context(), claim(tenant, devices{
		"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{"deviceClassName": "unlabelled.example.com"}}},
		"config":   []any{parameters(document)},
	})))
	if err != nil {
		t.Fatal(err)
	}
	return agent, policy
}

func text(document map[string]any) string {
	json, err := json.Marshal(document)
	if err != nil {
		return err.Error()
	}
	return string(json)
}

// documents returns parameters made of valid and invalid values, more of them valid.
func documents() *rapid.Generator[map[string]any] {
	values := map[string][]any{
		"processes":  {1, 48, 0, 49, "2", 1.5, nil},
		"compute":    {"Proportional", "Burst", "", "burst", 5, nil},
		"containers": {1, 64, 0, 65, "2", 1.5, nil},
		"require":    {"driver", "daemon", "cooperative", "", "none", "Driver", 5, nil},
		"multiUser":  {true, false, "true", 1, nil},
		"interval":   {"Default", "Short", "Long", "", "long", 2, nil},
		"percent":    {1, 100, 0, 101, -1, "50", 50.5, nil},
		"memory":     {"1Gi", "512Mi", "1.5Gi", 1048576, "10G", "1Ki", 0, -5, "", "1e9", "10e9", "1e100", ".5Gi", "20.G", "+1Gi", "1048575.5", 1048576.5, "0x10", "999999999999999999Ti", "1Gi\n", true, []any{"1Gi"}, nil},
		"device":     {0, "0", "1", 17, "GPU-6e2cb7f4-3f09-5a2f-8b6c-0a1b2c3d4e5f", "MIG-6e2cb7f4-3f09-5a2f-8b6c-0a1b2c3d4e5f", "", "01", -1, "gpu-1a-00", "0\n1", true, nil},
	}
	return rapid.Custom(func(t *rapid.T) map[string]any {
		// likely is true four times of five.
		likely := func(label string) bool { return rapid.IntRange(0, 4).Draw(t, label) > 0 }
		one := func(label string) any { return rapid.SampledFrom(values[label]).Draw(t, label) }
		maybe := func(into map[string]any, field string, value any) {
			if rapid.Bool().Draw(t, "has "+field) {
				into[field] = value
			}
		}
		odd := func(section any) any {
			if likely("is a section") {
				return section
			}
			return rapid.SampledFrom([]any{nil, "text", 5, []any{}, map[string]any{}, map[string]any{"unknown": 1}}).Draw(t, "odd")
		}
		nvidia := rapid.Bool().Draw(t, "nvidia")
		kinds, group, suffix := []string{"GpuConfig", "MigConfig", "ShareConfig"}, "gpu.nvidia.com/v1alpha1", ""
		if nvidia {
			kinds, group, suffix = []string{"GpuConfig", "MigDeviceConfig"}, "resource.nvidia.com/v1beta1", "Config"
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		document := map[string]any{"apiVersion": group, "kind": kind}
		if kind == "ShareConfig" {
			maybe(document, "strategy", rapid.SampledFrom([]any{"MPS", "Plain", "", "Fair", nil}).Draw(t, "strategy"))
			maybe(document, "processes", one("processes"))
			maybe(document, "compute", one("compute"))
			maybe(document, "containers", one("containers"))
			maybe(document, "require", one("require"))
			return document
		}
		mps := map[string]any{}
		if nvidia {
			maybe(mps, "defaultActiveThreadPercentage", one("percent"))
			maybe(mps, "defaultPinnedDeviceMemoryLimit", one("memory"))
			limits := map[string]any{}
			for range rapid.IntRange(0, 2).Draw(t, "limits") {
				limits[fmt.Sprint(one("device"))] = one("memory")
			}
			maybe(mps, "defaultPerDevicePinnedMemoryLimit", odd(limits))
		} else {
			maybe(mps, "threadPercentage", one("percent"))
			maybe(mps, "memoryLimit", one("memory"))
			limits := []any{}
			for range rapid.IntRange(0, 2).Draw(t, "limits") {
				limits = append(limits, odd(map[string]any{"device": one("device"), "memoryLimit": one("memory")}))
			}
			maybe(mps, "perDevice", odd(limits))
		}
		maybe(mps, "multiUser", one("multiUser"))
		strategy := rapid.SampledFrom([]any{"MPS", "MPS", "TimeSlicing", "TimeSlicing", "mps", 5, nil}).Draw(t, "strategy")
		sharing := map[string]any{}
		if likely("has a strategy") {
			sharing["strategy"] = strategy
		}
		if (strategy == "MPS") == likely("mps") {
			sharing["mps"+suffix] = odd(mps)
		}
		if (strategy == "TimeSlicing") == likely("time slicing") {
			sharing["timeSlicing"+suffix] = odd(map[string]any{"interval": one("interval")})
		}
		if kind == "MigDeviceConfig" && sharing["timeSlicing"+suffix] == nil {
			// Only the agent refuses an unknown field that is null.
			delete(sharing, "timeSlicing"+suffix)
		}
		maybe(document, "sharing", odd(sharing))
		if !likely("is known") {
			unknown := rapid.SampledFrom([]string{"Sharing", "metadata", "mps", strings.Repeat("x", 2000)}).Draw(t, "unknown")
			document[unknown] = map[string]any{}
		}
		return document
	})
}
