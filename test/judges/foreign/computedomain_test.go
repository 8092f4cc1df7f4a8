// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// nvidiaNamespace has the objects of NVIDIA's chart.
	nvidiaNamespace = "nvidia-dra-driver"
	// daemonImage has NVIDIA's compute-domain-daemon and nothing else.
	daemonImage = "localhost/compute-domain-daemon:test"
)

// installComputeDomains installs NVIDIA's DRA driver for compute domains alone, as the
// migration guide says. Its objects come from its chart. Its controller and its kubelet
// plugin are processes of the node: their containers would need mounts in /proc.
func installComputeDomains(t *testing.T, machine string) {
	t.Helper()
	ctx := t.Context()
	chart := filepath.Join(cluster.ForeignSource(), "deployments/helm/dra-driver-nvidia-gpu")
	objects, err := cluster.Helm(ctx, "template", "nvidia", chart, "--namespace", nvidiaNamespace, "--include-crds",
		"--set", "resources.gpus.enabled=false", "--api-versions", "resource.k8s.io/v1")
	must(t, err)
	must(t, cluster.CreateNamespace(ctx, nvidiaNamespace))
	var kept []string
	for _, object := range strings.Split(objects, "\n---\n") {
		if !strings.Contains(object, "\nkind: DaemonSet\n") && !strings.Contains(object, "\nkind: Deployment\n") {
			kept = append(kept, object)
		}
	}
	manifest := filepath.Join(t.TempDir(), "nvidia.yaml")
	must(t, os.WriteFile(manifest, []byte(strings.Join(kept, "\n---\n")), 0o600))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		for _, program := range []string{"cd-plugin", "cd-controller"} {
			must(t, cluster.StopForeign(ctx, program))
		}
		_, err := cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", manifest)
		must(t, err)
		must(t, cluster.DeleteNamespace(ctx, nvidiaNamespace))
		_, err = cluster.Kubectl(ctx, "delete", "resourceslices", "--field-selector", "spec.driver=compute-domain.nvidia.com")
		must(t, err)
	})
	_, err = cluster.Kubectl(ctx, "apply", "--server-side", "-f", manifest)
	must(t, err)

	must(t, cluster.LoadProgram(ctx, cluster.ForeignProgram("compute-domain-daemon"), daemonImage, "--root"))
	must(t, cluster.StartForeign(ctx, harness.Foreign{
		Name: "cd-controller", Program: "compute-domain-controller", Machine: machine,
		Env:  []string{"POD_NAME=controller", "NAMESPACE=" + nvidiaNamespace, "IMAGE_NAME=" + daemonImage, "LOG_VERBOSITY_CD_DAEMON=4"},
		Args: []string{"--kubeconfig=" + cluster.Kubeconfig},
	}))
	must(t, cluster.StartForeign(ctx, harness.Foreign{
		Name: "cd-plugin", Program: "compute-domain-kubelet-plugin", Machine: machine,
		Args: []string{
			"--kubeconfig=" + cluster.Kubeconfig, "--node-name=" + cluster.NodeName, "--namespace=" + nvidiaNamespace,
			"--container-driver-root=" + machine, "--nvidia-driver-root=" + machine, "--cdi-root=" + cluster.CDIDir,
			"--nvidia-cdi-hook-path=" + cluster.Program("nvidia-cdi-hook"),
			"--kubelet-plugins-directory-path=" + cluster.PluginsDir, "--kubelet-registrar-directory-path=" + cluster.PluginsRegistryDir,
		},
	}))
	must(t, harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		found, err := cluster.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=compute-domain.nvidia.com"})
		return err == nil && len(found.Items) > 0, "no slices of compute domains; the plugin's log:\n" + foreignLog(t, "cd-plugin"), err
	}))
}

// foreignLog is the end of the log of a program of NVIDIA's.
func foreignLog(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(cluster.ForeignLog(name))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// workload is a pod with a channel of a compute domain, and with two GPUs of ours that have
// the same clique.
const workload = `
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: training}
spec:
  numNodes: 1
  channel: {resourceClaimTemplate: {name: training-channel}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-gpus}
spec:
  spec:
    devices:
      requests:
      - name: gpus
        exactly: {deviceClassName: gpu.nvidia.com, count: 2}
      constraints:
      - {requests: [gpus], matchAttribute: gpu.nvidia.com/fabricCliqueID}
---
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/gpu-dra-driver/gpu-probe:demo
    resources: {claims: [{name: channel}, {name: gpus}]}
  resourceClaims:
  - {name: channel, resourceClaimTemplateName: training-channel}
  - {name: gpus, resourceClaimTemplateName: two-gpus}
`

func TestComputeDomainsOfNVIDIAHaveOurGPUs(t *testing.T) {
	agent := startAgent(t, "gb200")
	installComputeDomains(t, agent.SimDir())
	const ns = "compute-domain"
	newNamespace(t, ns)
	_, err := cluster.KubectlInput(t.Context(), workload, "apply", "--namespace", ns, "--filename", "-")
	must(t, err)
	if err := cluster.WaitReady(t.Context(), ns, "worker"); err != nil {
		t.Fatalf("%v\nthe plugin's log:\n%s\nthe controller's log:\n%s", err, foreignLog(t, "cd-plugin"), foreignLog(t, "cd-controller"))
	}

	sight, err := cluster.Sight(t.Context(), ns, "worker", "main")
	must(t, err)
	if gpus := sight.GPUs(); len(gpus) != 2 {
		t.Errorf("the container has the GPUs %q, want two", gpus)
	}
	if channels := sight.Channels(); !slices.Equal(channels, []string{"/dev/nvidia-caps-imex-channels/channel0"}) {
		t.Errorf("the container has the channels of IMEX %q, want channel0", channels)
	}
	// Their plugin starts the pod before their controller writes that the domain is ready.
	want := fmt.Sprintf("Ready %s 5d6e29b4-1d0c-4c8e-9f3a-72b1c0ffee72.32766", cluster.NodeName)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		status, err := cluster.Kubectl(ctx, "get", "computedomain", "--namespace", ns, "training", "--output", "jsonpath={.status.status} {.status.nodes[*].name} {.status.nodes[*].cliqueID}")
		return status == want, fmt.Sprintf("the compute domain is %q, want %q", status, want), err
	}))

	// Without the domain, its daemon leaves the node.
	for _, object := range []string{"pod/worker", "computedomain/training"} {
		_, err := cluster.Kubectl(t.Context(), "delete", "--namespace", ns, object, "--timeout", "1m")
		must(t, err)
	}
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pods, err := cluster.Client.CoreV1().Pods(nvidiaNamespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, "the daemon of the compute domain is left", err
	}))
}
