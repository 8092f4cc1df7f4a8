// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The images of demo/tasks are not at hand, so no cluster of the tests runs a RayCluster.
func TestManifestsOfProgramsClaimWhatTheirContainersName(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "demo/tasks/*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("manifests: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var templates []string
			var pods []corev1.PodSpec
			for _, document := range strings.Split(readFile(t, file), "\n---\n") {
				var object map[string]any
				if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
					t.Fatal(err)
				}
				if object["kind"] == "ResourceClaimTemplate" {
					templates = append(templates, object["metadata"].(map[string]any)["name"].(string))
				}
				pods = append(pods, podsIn(t, object)...)
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

// podsIn returns the specs of pods in an object. KubeRay does not count claims, so each group
// with a claim must say how many GPUs it has.
func podsIn(t *testing.T, object map[string]any) []corev1.PodSpec {
	t.Helper()
	if object["containers"] != nil {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.PodSpec
		if err := yaml.UnmarshalStrict(text, &pod); err != nil {
			t.Error(err)
		}
		return []corev1.PodSpec{pod}
	}
	var pods []corev1.PodSpec
	for _, value := range object {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, inner := range list {
			if inner, ok := inner.(map[string]any); ok {
				pods = append(pods, podsIn(t, inner)...)
			}
		}
	}
	if params, ok := object["rayStartParams"].(map[string]any); ok && params["num-gpus"] == nil && len(pods[0].ResourceClaims) > 0 {
		t.Errorf("group %v has a claim and no num-gpus", object["groupName"])
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
