// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// tasks is the folder with manifests of real programs. Their images are not at hand, so no
// cluster of the tests runs a RayCluster.
const tasks = "demo/tasks"

// Each container with a claim names a claim of its pod, whose template is in the same file.
func TestManifestsOfProgramsClaimWhatTheirContainersName(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, tasks, "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("manifests of %s: %v, %v", tasks, files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var templates []string
			var pods []corev1.PodSpec
			for _, document := range strings.Split(string(text), "\n---\n") {
				name, found := decode(t, document)
				pods = append(pods, found...)
				if name != "" {
					templates = append(templates, name)
				}
			}
			claims := 0
			for _, pod := range pods {
				claims += checkClaims(t, pod, templates)
			}
			if claims == 0 {
				t.Error("no container has a claim")
			}
		})
	}
}

// decode returns the name of a claim template, or the pods that an object makes. Unknown
// fields are an error.
func decode(t *testing.T, document string) (template string, pods []corev1.PodSpec) {
	t.Helper()
	var kind struct{ Kind string }
	into := func(object any) {
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.Kind {
	case "ResourceClaimTemplate":
		var o resourceapi.ResourceClaimTemplate
		into(&o)
		return o.Name, nil
	case "Pod":
		var o corev1.Pod
		into(&o)
		return "", []corev1.PodSpec{o.Spec}
	case "Deployment":
		var o appsv1.Deployment
		into(&o)
		return "", []corev1.PodSpec{o.Spec.Template.Spec}
	case "Job":
		var o batchv1.Job
		into(&o)
		return "", []corev1.PodSpec{o.Spec.Template.Spec}
	case "RayCluster":
		return "", rayPods(t, into)
	case "Service":
		into(&corev1.Service{})
	case "ConfigMap":
		into(&corev1.ConfigMap{})
	default:
		t.Errorf("kind %q", kind.Kind)
	}
	return "", nil
}

// rayGroup has the fields of KubeRay's group that the demo uses.
type rayGroup struct {
	GroupName      string
	Replicas       int
	RayStartParams map[string]string
	Template       corev1.PodTemplateSpec
}

// rayPods returns the pods of a RayCluster. KubeRay does not count claims, so each group
// with a claim must say how many GPUs it has.
func rayPods(t *testing.T, into func(any)) []corev1.PodSpec {
	t.Helper()
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			RayVersion       string
			HeadGroupSpec    rayGroup
			WorkerGroupSpecs []rayGroup
		}
	}
	into(&o)
	pods := []corev1.PodSpec{o.Spec.HeadGroupSpec.Template.Spec}
	for _, group := range o.Spec.WorkerGroupSpecs {
		pod := group.Template.Spec
		if len(pod.ResourceClaims) > 0 && group.RayStartParams["num-gpus"] == "" {
			t.Errorf("group %s has a claim and no num-gpus", group.GroupName)
		}
		pods = append(pods, pod)
	}
	return pods
}

// checkClaims returns the number of claims that the containers of a pod name.
func checkClaims(t *testing.T, pod corev1.PodSpec, templates []string) int {
	t.Helper()
	var known []string
	for _, claim := range pod.ResourceClaims {
		known = append(known, claim.Name)
		if claim.ResourceClaimTemplateName == nil || !slices.Contains(templates, *claim.ResourceClaimTemplateName) {
			t.Errorf("claim %s: its template is not one of %q", claim.Name, templates)
		}
	}
	named := 0
	for _, container := range pod.Containers {
		for _, claim := range container.Resources.Claims {
			named++
			if !slices.Contains(known, claim.Name) {
				t.Errorf("container %s names the claim %s, the pod has %q", container.Name, claim.Name, known)
			}
		}
	}
	return named
}
