// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// The policies of claims and classes; the one of the agent's rights is always
// there.
var policies = []string{"gpu-dra-driver-classes", "gpu-dra-driver-parameters", "gpu-dra-driver-requests"}

func TestPoliciesCanBeTriedAndSwitchedOff(t *testing.T) {
	warning := mustRender(t, cluster{}, "policies: {actions: [Warn]}")
	for _, name := range policies {
		binding := find[admissionv1.ValidatingAdmissionPolicyBinding](t, warning, "ValidatingAdmissionPolicyBinding", name)
		if got := binding.Spec.ValidationActions; len(got) != 1 || got[0] != admissionv1.Warn {
			t.Errorf("%s: the actions are %v, want Warn", name, got)
		}
	}
	for _, m := range mustRender(t, cluster{}, "policies: {enabled: false}").manifests {
		for _, name := range policies {
			if strings.Contains(m, "name: "+name) {
				t.Errorf("without policies there is\n%s", m)
			}
		}
	}
}

func TestAClassOfSharesMayGiveWholeGPUs(t *testing.T) {
	r := mustRender(t, cluster{}, "policies: {classes: {mps.nvidia.com: {shares: null}}}")
	if got, ok := find[resourceapi.DeviceClass](t, r, "DeviceClass", "mps.nvidia.com").Labels["gpu.nvidia.com/shares"]; ok {
		t.Errorf("the label shares is %q", got)
	}
}

func TestMistakesInPoliciesAreRefused(t *testing.T) {
	for name, values := range map[string]string{
		"a class that the chart does not have": "policies: {classes: {mps.nvidia.co: {max-memory: 20Gi}}}",
		"a limit that is not an amount":        "policies: {classes: {mps.nvidia.com: {max-memory: 20}}}",
		// What the chart's own policy refuses in the chart's own classes.
		"shares of time slices":  "policies: {classes: {timeslice.nvidia.com: {shares: none}}}",
		"MPS of time slices":     "policies: {classes: {timeslice.nvidia.com: {strategies: MPS}}}",
		"plain seats":            "policies: {classes: {seat.nvidia.com: {strategies: Plain}}}",
		"compute of MIG devices": "policies: {classes: {mig.nvidia.com: {max-memory: 5Gi, max-compute: 50}}}",
		"the strategy of the class itself is not allowed": "policies: {classes: {mps.nvidia.com: {strategies: Plain}}}",
		"compute without memory":                          "policies: {classes: {mps.nvidia.com: {max-compute: 50}}}",
		"a limit of whole GPUs":                           "policies: {classes: {gpu.nvidia.com: {max-memory: 20Gi}}}",
		"a limit and an extended resource":                "policies: {classes: {gpu.nvidia.com: {shares: null, max-memory: 20Gi}}}",
		"shares only and an extended resource":            "policies: {classes: {gpu.nvidia.com: {shares: only}}}",
		"a limit and extended resources of profiles":      "policies: {classes: {mig-profiles: {max-memory: 5Gi}}}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, cluster{}, values)
			if err == nil {
				t.Fatal("it is rendered")
			}
			if !strings.Contains(err.Error(), "policies") {
				t.Errorf("the error does not name the value: %v", err)
			}
		})
	}
}

func TestClassesWithLimitsAreTakenWithoutExtendedResources(t *testing.T) {
	r := mustRender(t, cluster{}, `
deviceClasses: {gpu: {extendedResource: ""}, migProfiles: {extendedResourcePrefix: ""}}
policies:
  actions: [Deny, Audit]
  classes:
    gpu.nvidia.com: {shares: only, max-memory: 20Gi, max-compute: 25}
    mig.nvidia.com: {shares: only}
    mig-profiles: {max-memory: 5Gi}
`)
	for class, limit := range map[string]string{"gpu.nvidia.com": "max-memory", "mig.nvidia.com": "shares", "mig-1g.10gb": "max-memory"} {
		got := find[resourceapi.DeviceClass](t, r, "DeviceClass", class)
		if got.Spec.ExtendedResourceName != nil || got.Labels["gpu.nvidia.com/"+limit] == "" {
			t.Errorf("%s has the extended resource %v and the labels %v", class, got.Spec.ExtendedResourceName, got.Labels)
		}
		// A device without shares is allocated whole for any amount.
		if selector := got.Spec.Selectors[0].CEL.Expression; !strings.Contains(selector, " && device.allowMultipleAllocations") {
			t.Errorf("%s selects %s, want only devices with shares", class, selector)
		}
	}
}

// The values that docs/admin/policy.md shows.
func TestValuesInTheDocumentOnPolicyAreTaken(t *testing.T) {
	document, err := os.ReadFile("../../docs/admin/policy.md")
	must(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(policies:\n.*?)^```$").FindAllStringSubmatch(string(document), -1)
	if len(blocks) == 0 {
		t.Fatal("it shows none")
	}
	for _, block := range blocks {
		mustRender(t, cluster{}, block[1])
	}
}
