// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// needsKubernetes skips a test on an older release. what names the part of Kubernetes that the
// release lacks. The default release has everything.
func needsKubernetes(t *testing.T, release, what string) {
	t.Helper()
	if isOlderThan(t, release) {
		t.Skipf("Kubernetes %s lacks %s, which %s has", cluster.KubernetesVersion, what, release)
	}
}

// isOlderThan reports whether the cluster's Kubernetes is older than a release.
func isOlderThan(t *testing.T, release string) bool {
	t.Helper()
	has, err := version.ParseSemantic(cluster.KubernetesVersion)
	must(t, err)
	return has.LessThan(version.MustParseGeneric(release))
}

// namespaceFor creates a namespace for a test. At the test's end it removes the
// namespace with all pods and claims.
func namespaceFor(t *testing.T, name string) string {
	t.Helper()
	must(t, cluster.CreateNamespace(t.Context(), name))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			t.Logf("the agent's log ends with:\n%s", agent.LogTail(ctx))
			// Whatever state the test left the agent in, the next one needs it.
			if err := agent.Start(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := cluster.DeleteNamespace(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// apply applies a manifest of the repository, or a literal one.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	file := manifest
	if strings.Contains(manifest, "\n") {
		file = filepath.Join(t.TempDir(), "manifest.yaml")
		must(t, os.WriteFile(file, []byte(manifest), 0o600))
	}
	kubectl(t, "apply", "-n", namespace, "-f", file)
}

// kubectl runs kubectl, also at the end of a test.
func kubectl(t *testing.T, args ...string) {
	t.Helper()
	_, err := cluster.Kubectl(context.WithoutCancel(t.Context()), args...)
	must(t, err)
}

// sim runs gpu-sim on the agent's hardware, also at the end of a test.
func sim(t *testing.T, args ...string) {
	t.Helper()
	_, err := agent.Sim(context.WithoutCancel(t.Context()), args...)
	must(t, err)
}

// applyInTurn applies the objects of a manifest one after the other.
func applyInTurn(t *testing.T, namespace, manifest string) {
	t.Helper()
	must(t, cluster.ApplyInTurn(t.Context(), namespace, manifest))
}

func remove(t *testing.T, namespace string, pods ...string) {
	t.Helper()
	kubectl(t, append([]string{"delete", "pod", "--wait=false", "-n", namespace}, pods...)...)
	must(t, cluster.WaitGone(t.Context(), namespace, pods...))
}

func ready(t *testing.T, namespace string, pods ...string) {
	t.Helper()
	must(t, cluster.WaitReady(t.Context(), namespace, pods...))
}

// report is who holds what, by "pod/container".
func report(t *testing.T, namespace string) map[string]harness.Row {
	t.Helper()
	rows, err := cluster.Report(t.Context(), namespace)
	must(t, err)
	byContainer := map[string]harness.Row{}
	for _, row := range rows {
		byContainer[row.Pod+"/"+row.Container] = row
	}
	return byContainer
}

// withoutPolicies disables the admission policies for this test. Claims that they
// refuse must reach the agent, which refuses last.
func withoutPolicies(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "validatingadmissionpolicybinding",
		harness.Namespace+"-parameters", harness.Namespace+"-requests", harness.Namespace+"-classes")
	t.Cleanup(func() { must(t, agent.Start(context.WithoutCancel(t.Context()))) })
	file := filepath.Join(t.TempDir(), "refused.yaml")
	// The API server forgets one policy after the other, so the claim is refused by each that
	// judges claims.
	must(t, os.WriteFile(file, []byte(claim("refused", "capacity: {requests: {memory: 10Gi}}", config("GpuConfig", `"no": 1`))), 0o600))
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "apply", "--dry-run=server", "-f", file)
		return err == nil, out, nil
	}))
}

// nothingLeft waits until the node holds nothing for any claim.
func nothingLeft(t *testing.T) {
	t.Helper()
	// It runs at a test's end too, when the test's own context is over.
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		left, err := agent.Leftovers(ctx)
		return len(left) == 0, "left behind: " + strings.Join(left, ", "), err
	}))
}

var must = require.NoError
