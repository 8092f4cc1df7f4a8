// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

func TestACorruptRecordIsQuarantinedAndTheRestGoesOn(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "corrupt")
	apply(t, ns, "demo/whole-gpu/two-pods.yaml")
	ready(t, ns, "two-pods-a", "two-pods-b")
	before := report(t, ns)
	must(t, agent.Stop(t.Context()))
	records, err := filepath.Glob(filepath.Join(agent.Home(), "claims", "*.record"))
	must(t, err)
	if len(records) != 2 {
		t.Fatalf("records %v, want one for each of two claims", records)
	}
	must(t, os.Truncate(records[0], 20))
	must(t, agent.Start(t.Context()))

	quarantined, err := filepath.Glob(filepath.Join(agent.Home(), "claims", "quarantine", "*"))
	must(t, err)
	if len(quarantined) == 0 {
		t.Error("the corrupt record was not kept in quarantine")
	}
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	after := report(t, ns)
	for _, other := range []string{"two-pods-a/main", "two-pods-b/main"} {
		if after["one-gpu/main"].UUID == before[other].UUID {
			t.Errorf("the new pod was given the GPU of %s", other)
		}
	}
	remove(t, ns, "one-gpu", "two-pods-a", "two-pods-b")
	for _, file := range quarantined {
		must(t, os.Remove(file))
	}
	nothingLeft(t)
}

func opaque(parameters string) string {
	return "config:\n- opaque:\n    driver: gpu.nvidia.com\n    parameters: " + parameters
}
