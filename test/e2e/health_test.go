// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A GPU whose agent is gone is not known to be well, and its pod runs on.
func TestGPUsWithoutAnAgentAreNotOK(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "no-agent")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	kubectl(t, "patch", "daemonset", harness.Namespace+"-agent", "--namespace", harness.Namespace,
		"--type", "merge", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"example.com/no-node": "true"}}}}}`)
	for _, args := range [][]string{{"who", "--namespace", ns}, {"get"}} {
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			out, err := cluster.GPU(ctx, args...)
			return strings.Contains(out, "no agent") && !strings.Contains(out, " ok"), "kubectl gpu prints " + out, err
		}))
	}
	must(t, agent.Start(t.Context()))
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.GPU(ctx, "get")
		return strings.Contains(out, " ok") && !strings.Contains(out, "no agent"), "kubectl gpu prints " + out, err
	}))
	remove(t, ns, "one-gpu")
	nothingLeft(t)
}
