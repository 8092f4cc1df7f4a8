package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

// An upgrade starts the new agent beside the old one; what runs goes on, and
// what starts meanwhile is served.
func TestAnUpgradeEndsNoPodAndKeepsNoneWaiting(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "upgrade")
	apply(t, ns, "demo/whole-gpu/two-pods.yaml")
	ready(t, ns, "two-pods-a", "two-pods-b")
	before, files := report(t, ns), cdiFiles(t)

	must(t, agent.Upgrade(t.Context(), "--reconcile-interval=1m"))
	// The old agent may be at it still.
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	must(t, agent.WaitReady(t.Context()))

	after := report(t, ns)
	delete(after, "one-gpu/main")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("who holds what changed (-before +after):\n%s", diff)
	}
	for file, text := range cdiFiles(t) {
		if old, ok := files[file]; ok && old != text {
			t.Errorf("the CDI file %s changed (-before +after):\n%s", file, cmp.Diff(old, text))
		}
	}
	remove(t, ns, "one-gpu", "two-pods-a", "two-pods-b")
	nothingLeft(t)
	must(t, agent.Start(t.Context())) // as it was
}

func TestUninstallingLeavesNothingInTheClusterAndNothingThatRunsOnTheNode(t *testing.T) {
	nothingLeft(t)
	t.Cleanup(func() { must(t, agent.Start(context.WithoutCancel(t.Context()))) })
	must(t, cluster.Uninstall(t.Context()))

	out, err := cluster.Kubectl(t.Context(), "get", "-A", "-o", "name", "-l", "app.kubernetes.io/name="+harness.Namespace,
		"all,deviceclasses,clusterroles,clusterrolebindings,serviceaccounts,validatingadmissionpolicies,validatingadmissionpolicybindings,configmaps")
	must(t, err)
	if strings.Contains(out, "/") {
		t.Errorf("left in the cluster: %s", out)
	}
	// The kubelet withdraws the slices of a driver that is gone.
	must(t, harness.Until(t.Context(), 2*time.Minute, func(ctx context.Context) (bool, string, error) {
		left := 0
		err := cluster.EachSlice(ctx, func(resourceapi.ResourceSlice) { left++ })
		return left == 0, fmt.Sprintf("%d ResourceSlices are left", left), err
	}))
	for _, pattern := range []string{
		filepath.Join(cluster.CDIDir, "*"),
		filepath.Join(cluster.PluginsRegistryDir, "*"),
		filepath.Join(cluster.PluginsDir, harness.DriverName, "*.sock"),
		filepath.Join(agent.Supervisor().RunDir(), "daemons", "*"),
	} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		if len(found) > 0 {
			t.Errorf("left on the node: %v", found)
		}
	}
	if _, err := os.Stat(filepath.Join(agent.StateDir(), "claims")); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}
