// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
`

// manifest returns the path of a file with the text.
func manifest(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "app.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// podsOf returns a manifest of a workload whose pods have a claim of the template.
func podsOf(kind, spec string) string {
	version := map[string]string{"Job": "batch/v1", "Pod": "v1"}[kind]
	if version == "" {
		version = "apps/v1"
	}
	pod := `{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: main, image: none, resources: {claims: [{name: gpu}]}}]}`
	if kind != "Pod" {
		pod = `{` + spec + ` template: {spec: ` + pod + `}}`
	}
	return `{apiVersion: ` + version + `, kind: ` + kind + `, metadata: {name: train}, spec: ` + pod + "}\n---\n"
}

func TestPlan(t *testing.T) {
	const extended = `{apiVersion: v1, kind: Pod, metadata: {name: old}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}}`
	const main = "containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]"
	withInit := func(container string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: old}, spec: {" + main + ", initContainers: [{name: init, resources: {limits: {nvidia.com/gpu: 2}}" + container + "}]}}"
	}
	const named = `
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: both}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: readers}, spec: {replicas: 3, template: {spec: {resourceClaims: [{name: gpu, resourceClaimName: both}], containers: [{name: main, resources: {claims: [{name: gpu}]}}]}}}}
`
	for name, tc := range map[string]struct {
		manifest string
		flags    []string
		want     string
	}{
		"now": {template + podsOf("Deployment", "replicas: 3,"), nil, `
deployment/train: 1 of 3 pods stays Pending: node a: other claims hold the devices
GPUs in use: 4 of 4, before: 2
2 of 3 pods fit`},
		"a job": {template + podsOf("Job", "parallelism: 2,"), nil, `
GPUs in use: 4 of 4, before: 2
2 of 2 pods fit`},
		"a job that needs fewer": {template + podsOf("Job", "parallelism: 5, completions: 1,"), nil, `
GPUs in use: 3 of 4, before: 2
1 of 1 pod fit`},
		"a pod of a DaemonSet for a full node": {strings.Replace(template+podsOf("DaemonSet", ""), "resources: {", "resources: {requests: {cpu: 2}, ", 1), nil, `
daemonset/train: 1 of 1 pod stays Pending: node a: it has 1 of cpu free, less than 2
GPUs in use: 2 of 4, before: 2
0 of 1 pod fit`},
		"replicas on nodes of a model": {template + podsOf("ReplicaSet", "replicas: 6,"), []string{"--nodes", "2", "--model", "t4"}, `
GPUs in use: 6 of 8, before: 0
6 of 6 pods fit`},
		"nodes of a model": {template + podsOf("DaemonSet", ""), []string{"--nodes", "2", "--model", "dgx-h100"}, `
GPUs in use: 2 of 16, before: 0
2 of 2 pods fit`},
		"an extended resource": {extended, nil, `
pod/old: 1 of 1 pod stays Pending: node a: other claims hold the devices
GPUs in use: 2 of 4, before: 2
0 of 1 pod fit`},
		"an extended resource of a sidecar": {withInit(", restartPolicy: Always"), nil, `
pod/old: 1 of 1 pod stays Pending: node a: other claims hold the devices
GPUs in use: 2 of 4, before: 2
0 of 1 pod fit`},
		"an extended resource of an init container": {withInit(""), nil, `
GPUs in use: 4 of 4, before: 2
1 of 1 pod fit`},
		"pods of one claim": {named, nil, `
GPUs in use: 3 of 4, before: 2
3 of 3 pods fit`},
		"a template that does not exist": {podsOf("Pod", ""), nil, `
pod/train: 1 of 1 pod stays Pending: claim template one does not exist
GPUs in use: 2 of 4, before: 2
0 of 1 pod fit`},
		"a class that does not exist": {strings.Replace(template, "gpu.nvidia.com", "gpus", 1) + podsOf("Pod", ""), nil, `
pod/train: 1 of 1 pod stays Pending: the DeviceClass gpus does not exist: name another: kubectl get deviceclasses
GPUs in use: 2 of 4, before: 2
0 of 1 pod fit`},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			w.Nodes[0].Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}
			out, problems := run(t, server(w), append([]string{"plan", "-n", "default", "-f", manifest(t, tc.manifest)}, tc.flags...)...)
			lines(t, out+problems, tc.want)
		})
	}
}

func TestManifestsOfAFolder(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "# nothing\n---\n" + podsOf("Pod", ""),
		"b.json": `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}}, {"apiVersion": "example.com/v1", "kind": "Unknown"}]}`,
		"c.txt":  "not a manifest: [",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	m, err := readManifests([]string{folder, "-"}, strings.NewReader(podsOf("Job", "parallelism: 4,")), "team")
	require.NoError(t, err)
	var got []string
	for _, w := range m.workloads {
		got = append(got, w.Namespace+"/"+w.String())
	}
	if want := "team/pod/train team/pod/second team/job/train"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.yaml")
	require.NoError(t, os.WriteFile(good, []byte(podsOf("Pod", "")), 0o600))
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("kind: ["), 0o600))
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("{apiVersion: v1, kind: Pod, spec: 7}"), 0o600))
	old := manifest(t, strings.Replace(template, "resource.k8s.io/v1", "resource.k8s.io/v1beta1", 1))
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"want --filename":                     {},
		"and their model, or neither":         {"-f", good, "--model", "t4"},
		"a positive number of nodes":          {"-f", good, "--nodes", "3"},
		"model x: not found: want one of a30": {"-f", good, "--nodes", "3", "--model", "x"},
		"bad.yaml: invalid":                   {"-f", bad},
		"wrong.yaml: invalid":                 {"-f", wrong},
		"of resource.k8s.io/v1beta1: not supported: want resource.k8s.io/v1": {"-f", old},
		"there are no pods": {"-f", empty},
		"no such file":      {"-f", good + "x"},
		"offer x":           {"-f", good, "--nodes", "3", "--model", "t4", "--offer", "x"},
	} {
		if out, problems := run(t, server(shared(t)), append([]string{"plan"}, args...)...); out != "" || !strings.Contains(problems, want) {
			t.Errorf("%v: got %s%s, want %q", args, out, problems, want)
		}
	}
}

func TestPlanOfAModelNeedsNoCluster(t *testing.T) {
	const class = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}, spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}}`
	for kubeconfig, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "no cluster is configured",
		kubeconfig(t):                      "cannot reach the API server at test",
	} {
		out, problems, status := runBy(t, kubeconfig, connect, "plan", "--nodes", "2", "--model", "t4", "--filename", manifest(t, template+podsOf("Deployment", "replicas: 9,")+class))
		if status != 2 || !strings.Contains(out, "8 of 9 pods fit") || !strings.Contains(problems, want) {
			t.Errorf("status %d, %s%s, want status 2, 8 pods of 9 and %q", status, out, problems, want)
		}
	}
}
