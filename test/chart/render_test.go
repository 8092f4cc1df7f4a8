// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart of deployments/helm: its manifests for several
// kinds of clusters, the values that it refuses, and that it knows every flag of
// the programs that it runs. Installing it is for the end-to-end tests.
package chart

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../../deployments/helm/gpu-dra-driver"
	release  = "gpu-dra-driver"
)

// cluster is what the chart can find out of where it is installed.
type cluster struct {
	// version of Kubernetes; empty for v1.37.1.
	version string
	// policies are the ClusterPolicies of the GPU operator; nil if it was
	// never installed.
	policies []map[string]any
	// nodes by name, with their label nvidia.com/gpu.deploy.driver, which may be
	// empty.
	nodes map[string]string
	// apis are further groups and versions that the API server has.
	apis []string
	// claims and templates name these classes; nil if the release is installed for the first time.
	claims, templates []string
}

// rendered is the output of helm, by its kinds.
type rendered struct {
	// files are all templates, by path.
	files map[string]string
	// manifests in the order in which helm creates them, and hooks.
	manifests, hooks []string
	notes            string
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	must(t, err)
	return c
}

// render renders the chart with values in YAML; it fails as helm would.
func render(t *testing.T, on cluster, values string) (rendered, error) {
	t.Helper()
	return renderAs(t, release, on, values)
}

// renderAs renders a release of the name, in the namespace of the name.
func renderAs(t *testing.T, release string, on cluster, values string) (rendered, error) {
	t.Helper()
	c := load(t)
	given := map[string]any{}
	must(t, yaml.Unmarshal([]byte(values), &given))
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(cmp.Or(on.version, "v1.37.1"))
	must(t, err)
	capabilities.KubeVersion = *version
	if on.policies != nil {
		capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), "nvidia.com/v1", "nvidia.com/v1/ClusterPolicy")
	}
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), on.apis...)
	upgrade := on.claims != nil || on.templates != nil
	options := common.ReleaseOptions{Name: release, Namespace: release, Revision: 1, IsInstall: !upgrade, IsUpgrade: upgrade}
	all, err := chartutil.ToRenderValues(c, given, options, capabilities)
	if err != nil {
		return rendered{}, err
	}
	var r rendered
	if r.files, err = engine.RenderWithClientProvider(c, all, on); err != nil {
		return rendered{}, err
	}
	templates := map[string]string{}
	for path, text := range r.files {
		if strings.HasSuffix(path, "NOTES.txt") {
			r.notes = text
			continue
		}
		templates[path] = text
	}
	hooks, manifests, err := util.SortManifests(templates, nil, util.InstallOrder)
	if err != nil {
		return rendered{}, err
	}
	for _, m := range manifests {
		r.manifests = append(r.manifests, m.Content)
	}
	for _, h := range hooks {
		r.hooks = append(r.hooks, h.Manifest)
	}
	return r, nil
}

func mustRender(t *testing.T, on cluster, values string) rendered {
	t.Helper()
	r, err := render(t, on, values)
	must(t, err)
	return r
}

// valuesFile reads a file of testdata/values.
func valuesFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/values", name))
	must(t, err)
	return string(text)
}

// document returns the manifests as one YAML stream.
func document(manifests []string) string {
	var b strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&b, "---\n%s\n", strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(m), "---")))
	}
	return b.String()
}

// find decodes the one manifest of a kind and name into an object, strictly.
func find[T any](t *testing.T, r rendered, kind, name string) *T {
	t.Helper()
	for _, m := range append(slices.Clone(r.manifests), r.hooks...) {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		must(t, yaml.Unmarshal([]byte(m), &head))
		if head.Kind != kind || head.Metadata.Name != name {
			continue
		}
		object := new(T)
		if err := yaml.UnmarshalStrict([]byte(m), object); err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
		return object
	}
	t.Fatalf("the chart renders no %s %s", kind, name)
	return nil
}

// GetClientFor implements [engine.ClientProvider] for what the chart looks up.
func (c cluster) GetClientFor(apiVersion, kind string) (client dynamic.NamespaceableResourceInterface, namespaced bool, err error) {
	var resource schema.GroupVersionResource
	var objects []runtime.Object
	switch {
	case c.policies != nil && kind == "ClusterPolicy" && apiVersion == "nvidia.com/v1":
		resource = schema.GroupVersionResource{Group: "nvidia.com", Version: "v1", Resource: "clusterpolicies"}
		for i, p := range c.policies {
			o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(p)}
			o.SetName(fmt.Sprint(o.GetName(), "-", i))
			objects = append(objects, o)
		}
	case kind == "Node" && apiVersion == "v1":
		resource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
		for name, label := range c.nodes {
			node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
			node.SetName(name)
			if label != "" {
				node.SetLabels(map[string]string{"nvidia.com/gpu.deploy.driver": label})
			}
			objects = append(objects, node)
		}
	case strings.HasPrefix(kind, "ResourceClaim") && apiVersion == "resource.k8s.io/v1":
		resource = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: strings.ToLower(kind) + "s"}
		namespaced = true
		for i, class := range map[string][]string{"ResourceClaim": c.claims, "ResourceClaimTemplate": c.templates}[kind] {
			spec := map[string]any{"devices": map[string]any{"requests": []any{
				map[string]any{"name": "gpu", "firstAvailable": []any{map[string]any{"name": "a", "deviceClassName": "gpu.nvidia.com"}, map[string]any{"name": "b", "deviceClassName": class}}},
			}}}
			if kind == "ResourceClaimTemplate" {
				spec = map[string]any{"spec": spec}
			}
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
			o.SetNamespace("default")
			o.SetName(fmt.Sprint("claim-", i))
			objects = append(objects, o)
		}
	default:
		return nil, false, errors.New("the cluster has no " + apiVersion + " " + kind)
	}
	kinds := map[schema.GroupVersionResource]string{resource: kind + "List"}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...).Resource(resource), namespaced, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
