// SPDX-License-Identifier: Apache-2.0

package apivalidation

import (
	"os"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"sigs.k8s.io/yaml"
)

// The API server must accept every class that we ship. The class has an extended
// resource's name and expressions.
func TestTheDeviceClassesAreAccepted(t *testing.T) {
	ctx := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: resourcev1.GroupName, APIVersion: "v1", Resource: "deviceclasses",
	})
	const file = "../../../deployments/static/install.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if meta.Kind != "DeviceClass" {
			continue
		}
		var class resourcev1.DeviceClass
		if err := yaml.UnmarshalStrict([]byte(document), &class); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		var internal resource.DeviceClass
		if err := legacyscheme.Scheme.Convert(&class, &internal, nil); err != nil {
			t.Fatal(err)
		}
		rest.FillObjectMetaSystemFields(&internal)
		if err := rest.BeforeCreate(deviceclass.Strategy, ctx, &internal); err != nil {
			t.Errorf("%s: class %s: %v", file, class.Name, err)
		}
		if internal.Spec.ExtendedResourceName == nil && class.Spec.ExtendedResourceName != nil {
			t.Errorf("%s: class %s: its extended resource would be dropped", file, class.Name)
		}
		for _, name := range []string{class.Name, resourceName(class)} {
			if names[name] {
				t.Errorf("%s: %s is there twice", file, name)
			}
			names[name] = name != ""
		}
	}
}

func resourceName(class resourcev1.DeviceClass) string {
	if class.Spec.ExtendedResourceName == nil {
		return ""
	}
	return *class.Spec.ExtendedResourceName
}
