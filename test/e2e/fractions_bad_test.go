// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

func opaque(parameters string) string {
	return "config:\n- opaque:\n    driver: gpu.nvidia.com\n    parameters: " + parameters
}

// config of ours, as one line of YAML.
func config(kind, fields string) string {
	return opaque(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "` + kind + `", ` + fields + `}`)
}

func testBadShares(t *testing.T) {
	withoutPolicies(t)
	ns := namespaceFor(t, "fractions-bad")
	const tenGi = "capacity: {requests: {memory: 10Gi}}"
	for _, tc := range []struct {
		name, class, request, config string
		// want are parts of the event's message.
		want []string
	}{
		{name: "too-many-processes", request: tenGi, config: config("ShareConfig", `"processes": 40`), want: []string{"of the 48 processes that MPS admits", "declares 40", "declare 6 in the ShareConfig, or ask for"}},
		{name: "a-typo", request: tenGi, config: config("ShareConfig", `"process": 2`), want: []string{`"process"`, "processes"}},
		{name: "an-unknown-kind", config: opaque(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GPUConfiguration"}`), want: []string{"GPUConfiguration", "GpuConfig"}},
		{name: "a-value-that-breaks-out", config: config("GpuConfig", `"sharing": {"strategy": "MPS", "mps": {"perDevice": [{"device": "0=10G,1=99G\nLD_PRELOAD=/tmp/x", "memoryLimit": "1Gi"}]}}`), want: []string{"sharing.mps.perDevice[0].device"}},
		{name: "turns-of-a-length-that-mig-has-not", class: "mig.nvidia.com", config: config("MigConfig", `"sharing": {"strategy": "TimeSlicing", "timeSlicing": {"interval": "Long"}}`), want: []string{"interval", "MIG"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			manifest := claim(tc.name, tc.request, tc.config)
			if tc.class != "" {
				manifest = of(tc.class, manifest)
			}
			apply(t, ns, manifest+pod(tc.name, tc.name, ""))
			message, err := cluster.WaitEvent(t.Context(), ns, tc.name, tc.want[0])
			must(t, err)
			for _, part := range tc.want {
				if !strings.Contains(message, part) {
					t.Errorf("event %q does not contain %q", message, part)
				}
			}
			remove(t, ns, tc.name)
			nothingLeft(t)
		})
	}
}
