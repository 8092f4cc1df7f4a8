// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// desk has stand-ins of the tools on PATH, which write their calls to a file.
type desk struct {
	demo
	calls string
	tools string
	out   *strings.Builder
}

func newDesk(t *testing.T) desk {
	t.Helper()
	folder := t.TempDir()
	bin, images := filepath.Join(folder, "bin"), filepath.Join(folder, "images")
	d := desk{calls: filepath.Join(folder, "calls"), tools: filepath.Join(folder, "tools"), out: &strings.Builder{}}
	d.demo = demo{root: "../..", bin: bin, images: images, name: "own", model: "dgx-h100", out: d.out}
	for _, dir := range []string{bin, images, d.tools} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", d.tools)
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "")
	d.script(t, filepath.Join(d.tools, "docker"), "")
	d.script(t, filepath.Join(d.tools, "kind"), "")
	d.kubernetes(t, "37")
	d.script(t, filepath.Join(bin, "helm"), "")
	d.script(t, filepath.Join(bin, "kubectl-gpu"), "")
	write(t, filepath.Join(images, "images.json"), `[
		{"name": "gpu-kubelet-plugin", "reference": "localhost:5000/gpu-dra-driver/gpu-kubelet-plugin:v0.1.0_abc", "archive": "gpu-kubelet-plugin.tar"},
		{"name": "gpu-probe", "reference": "localhost:5000/gpu-dra-driver/gpu-probe:v0.1.0_abc", "archive": "gpu-probe.tar"}]`, 0o644)
	return d
}

// kubernetes makes kubectl answer with that minor version. The namespace does not exist.
func (d desk) kubernetes(t *testing.T, minor string) {
	t.Helper()
	d.script(t, filepath.Join(d.tools, "kubectl"), `case "$*" in
version*) echo '{"serverVersion": {"minor": "`+minor+`", "gitVersion": "v1.`+minor+`.0"}}' ;;
"get namespace demo") exit 1 ;;
esac`)
}

// script makes a stand-in that writes its call, and then runs the body.
func (d desk) script(t *testing.T, path, body string) {
	t.Helper()
	write(t, path, "#!/bin/sh\necho \"${0##*/} $*\" >>'"+d.calls+"'\n"+body+"\n", 0o755)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// called returns the calls, with short names for the folders.
func (d desk) called(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(d.calls)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), d.images, "IMAGES")), "\n")
}

func TestTheCommandsInTheirOrder(t *testing.T) {
	d := newDesk(t)
	d.nodeImage = "kindest/node:v1.37.0"
	if err := d.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docker info",
		"kind get clusters",
		"kind create cluster --name own --kubeconfig IMAGES/kind-own.kubeconfig --wait 5m --image kindest/node:v1.37.0",
		"kubectl version --output json",
		"kind load image-archive IMAGES/gpu-kubelet-plugin.tar --name own",
		"kind load image-archive IMAGES/gpu-probe.tar --name own",
		"helm upgrade --install gpu-dra-driver deployments/helm/gpu-dra-driver --namespace gpu-dra-driver --create-namespace " +
			"--set image.registry=localhost:5000/gpu-dra-driver --set-string image.tag=v0.1.0_abc --set image.pullPolicy=Never --set simulation.model=dgx-h100",
		"kubectl --namespace gpu-dra-driver rollout status daemonset/gpu-dra-driver-agent --timeout=5m",
		"kubectl get namespace demo",
		"kubectl create namespace demo",
		"kubectl apply --namespace demo --filename demo/whole-gpu",
		"kubectl wait --namespace demo --for condition=Ready --timeout=5m " + strings.Join(pods, " "),
		"kubectl-gpu who --namespace demo",
		"kubectl-gpu explain nine-gpus --namespace demo",
	}
	if diff := cmp.Diff(want, d.called(t)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if !strings.Contains(d.out.String(), "kind delete cluster --name own") {
		t.Errorf("the output does not say how to remove the cluster:\n%s", d.out)
	}
}

func TestAClusterThatExistsIsUsedAgain(t *testing.T) {
	d := newDesk(t)
	d.script(t, filepath.Join(d.tools, "kind"), `[ "$*" != "get clusters" ] || printf 'other\nown\n'`)
	if err := d.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := strings.Join(d.called(t), "\n")
	if strings.Contains(calls, "create cluster") || !strings.Contains(calls, "kind export kubeconfig --name own --kubeconfig IMAGES/kind-own.kubeconfig") {
		t.Errorf("calls:\n%s", calls)
	}
}

func TestAnOldKubernetesIsRefusedBeforeAnythingIsInstalled(t *testing.T) {
	d := newDesk(t)
	d.kubernetes(t, "33")
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Kubernetes v1.33.0, and the driver needs 1.34 or newer") {
		t.Errorf("error %v", err)
	}
	if calls := strings.Join(d.called(t), "\n"); strings.Contains(calls, "helm") || strings.Contains(calls, "load") {
		t.Errorf("calls:\n%s", calls)
	}
}

func TestMissingToolsAreAllNamed(t *testing.T) {
	d := newDesk(t)
	t.Setenv("PATH", t.TempDir())
	err := d.check(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"a container engine: docker, or podman", "needs kind on PATH: https://kind.sigs.k8s.io", "needs kubectl on PATH", "make demo needs none of them"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestAnEngineThatDoesNotAnswerIsNamed(t *testing.T) {
	d := newDesk(t)
	d.script(t, filepath.Join(d.tools, "docker"), "echo 'is the daemon running?'; exit 1")
	if err := d.check(t.Context()); err == nil || !strings.Contains(err.Error(), "docker does not answer") || !strings.Contains(err.Error(), "is the daemon running?") {
		t.Errorf("error %v", err)
	}
	d.script(t, filepath.Join(d.tools, "podman"), "")
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "podman")
	if err := d.check(t.Context()); err != nil {
		t.Errorf("podman answers, but: %v", err)
	}
}

func TestAFailureEndsTheDemo(t *testing.T) {
	d := newDesk(t)
	d.script(t, filepath.Join(d.bin, "helm"), "echo 'no such value'; exit 1")
	err := d.run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "helm upgrade --install") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(d.out.String(), "no such value") {
		t.Errorf("helm's own message is not in the output:\n%s", d.out)
	}
	if calls := d.called(t); !strings.HasPrefix(calls[len(calls)-1], "helm ") {
		t.Errorf("calls after the failure: %q", calls)
	}
}

// The demo waits for the pods that its manifests have.
func TestTheListOfPodsMatchesTheManifests(t *testing.T) {
	files, err := filepath.Glob("../../demo/whole-gpu/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(part), &object); err != nil {
				t.Fatal(err)
			}
			if object.Kind == "Pod" {
				found["pod/"+object.Metadata.Name] = true
			}
		}
	}
	want := map[string]bool{"pod/nine-gpus": true}
	for _, pod := range pods {
		want[pod] = true
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
