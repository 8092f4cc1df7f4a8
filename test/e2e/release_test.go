// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// An upgrade starts the new agent while the old one still runs. Running pods go on,
// and pods that start meanwhile are served.
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
	require.Same(t, "who holds what changed", before, after)
	for file, text := range cdiFiles(t) {
		if old, ok := files[file]; ok && old != text {
			t.Errorf("the CDI file %s changed (-before +after):\n%s", file, cmp.Diff(old, text))
		}
	}
	remove(t, ns, "one-gpu", "two-pods-a", "two-pods-b")
	nothingLeft(t)
	must(t, agent.Start(t.Context())) // as it was
}

func TestUninstallingLeavesNothingInTheClusterAndTwoEmptyFoldersOnTheNode(t *testing.T) {
	nothingLeft(t)
	t.Cleanup(func() { must(t, agent.Start(context.WithoutCancel(t.Context()))) })
	must(t, cluster.Uninstall(t.Context()))
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "get", "-A", "-o", "name", "-l", "app.kubernetes.io/name="+harness.Namespace,
			"all,deviceclasses,clusterroles,clusterrolebindings,serviceaccounts,validatingadmissionpolicies,validatingadmissionpolicybindings,configmaps")
		return err == nil && !strings.Contains(out, "/"), "left in the cluster: " + out, err
	}))
	// The kubelet withdraws the slices of a driver that is gone.
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		left := 0
		err := cluster.EachSlice(ctx, func(resourceapi.ResourceSlice) { left++ })
		return left == 0, fmt.Sprintf("%d ResourceSlices are left", left), err
	}))
	// The kubelet has made these for the supervisor's pod, which cannot remove its
	// own mounts.
	want := []string{agent.Supervisor().RunDir() + "/", agent.Supervisor().LogDir() + "/"}
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		left, err := onNode()
		diff := cmp.Diff(want, left, sorted)
		return diff == "", "left on the node (-want +got):\n" + diff, err
	}))
}

// Without the agent a pod keeps running. The kubelet cannot end it cleanly before
// an agent serves again.
func TestAPodOutlivesThatTheReleaseIsUninstalledAndInstalledAgain(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "reinstalled")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	before, files := report(t, ns), cdiFiles(t)
	must(t, cluster.Uninstall(t.Context()))

	records, err := filepath.Glob(filepath.Join(agent.Home(), "claims", "*.record"))
	must(t, err)
	if len(records) != 1 {
		t.Errorf("records %q, want that of the pod's claim", records)
	}
	// A container of the pod that is restarted needs what its CDI spec names.
	hook := filepath.Join(agent.Home(), "nvidia-cdi-hook")
	if info, err := os.Stat(hook); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("the hook is gone: %v, %v", info, err)
	}
	require.Same(t, "the CDI files changed", files, cdiFiles(t))
	if all := fmt.Sprint(files); !strings.Contains(all, hook) {
		t.Errorf("no CDI file names %s: %s", hook, all)
	}

	must(t, agent.Start(t.Context()))
	require.Same(t, "who holds what changed", before, report(t, ns))
	pod, err := cluster.Client.CoreV1().Pods(ns).Get(t.Context(), "one-gpu", metav1.GetOptions{})
	must(t, err)
	if s := pod.Status.ContainerStatuses[0]; !s.Ready || s.RestartCount != 0 {
		t.Errorf("the pod did not run on: %+v", s)
	}
	remove(t, ns, "one-gpu")
	nothingLeft(t)
}

// onNode are the files that a release has on the node. It includes the empty
// folders, with a slash at their end.
func onNode() ([]string, error) {
	var found []string
	// Of the first three the folder itself is the release's too.
	for n, dir := range []string{cluster.DriverDir(), agent.Supervisor().RunDir(), agent.Supervisor().LogDir(), cluster.CDIDir, cluster.PluginsRegistryDir} {
		err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) || n > 2 && path == dir {
				return nil
			}
			if err != nil || !entry.IsDir() {
				found = append(found, path)
				return err
			}
			inner, err := os.ReadDir(path)
			if len(inner) == 0 {
				found = append(found, path+"/")
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
