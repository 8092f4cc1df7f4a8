// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")

// What the administrator reads can be applied unchanged. Values of the chart are
// for its own tests.
func TestManifestsInTheDocumentAreAdmitted(t *testing.T) {
	document, err := os.ReadFile("../../../docs/admin/policy.md")
	must(t, err)
	var applied int
	for _, block := range yamlBlock.FindAllStringSubmatch(string(document), -1) {
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")), &o.Object))
		if o.GetKind() == "" {
			continue
		}
		if o.GetKind() != "DeviceClass" {
			o.SetNamespace(tenant)
		}
		applied++
		t.Run(o.GetKind(), func(t *testing.T) {
			if err := world.try(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	if applied < 3 {
		t.Errorf("%d manifests in the document", applied)
	}
}

// The demos' manifests pass the policies of the chart's default values. The claims
// of a demo pass the policies that its own classes require.
func TestTheDemosAreAdmitted(t *testing.T) {
	files, err := filepath.Glob("../../../demo/*/*.yaml")
	must(t, err)
	var objects []*unstructured.Unstructured
	for _, file := range files {
		read, err := read(file)
		must(t, err)
		for _, o := range read {
			if o.GetKind() == "DeviceClass" {
				apply(t, o)
			}
		}
		objects = append(objects, read...)
	}
	var tried int
	for _, o := range objects {
		if o.GetKind() != "ResourceClaim" && o.GetKind() != "ResourceClaimTemplate" {
			continue
		}
		o.SetNamespace(monitoring) // some ask for admin access
		tried++
		if err := world.try(t.Context(), o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if tried < 10 {
		t.Errorf("%d claims in the demos", tried)
	}
}

// apply makes a class, until the test ends, and waits until claims meet it.
func apply(t *testing.T, class *unstructured.Unstructured) {
	t.Helper()
	must(t, world.apply(t.Context(), class))
	t.Cleanup(func() {
		must(t, world.of(class).Delete(context.WithoutCancel(t.Context()), class.GetName(), metav1.DeleteOptions{}))
	})
	if class.GetLabels()["gpu.nvidia.com/type"] != "" {
		must(t, world.untilRefused(t.Context(), misnamed(class.GetName())))
	}
}
