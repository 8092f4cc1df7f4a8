// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// request is the target of a request: /api/v1/namespaces/NS/pods/NAME/status. It has no resource for discovery.
type request struct {
	apiVersion, namespace, resource, name, subresource string
}

// served are the versions of the groups of which not all are served. A client of another version falls back.
var served = map[string]string{"resource.k8s.io": "v1"}

func parseRequest(path string) (r request, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		r.apiVersion, parts = parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		if version, ok := served[parts[1]]; ok && version != parts[2] {
			return request{}, false
		}
		r.apiVersion, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return request{}, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		r.namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&r.resource, &r.name, &r.subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	return r, true
}

func (r request) collection() string { return r.apiVersion + "/" + r.resource }

func (r request) key() string { return r.collection() + "/" + r.namespace + "/" + r.name }

// kinds returns the kinds of a version that client-go knows, by their resources: "ResourceSlice" by "resourceslices".
func kinds(apiVersion string) map[string]string {
	found := map[string]string{}
	version, _ := schema.ParseGroupVersion(apiVersion) // a malformed version has no kinds
	types := scheme.Scheme.KnownTypes(version)
	for kind := range types {
		if _, listed := types[kind+"List"]; listed {
			resource, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
			found[resource.Resource] = kind
		}
	}
	return found
}

// kind returns the kind of a resource. A client that knows other kinds does not need it.
func (r request) kind() string { return cmp.Or(kinds(r.apiVersion)[r.resource], "Unknown") }

// clusterScoped are the resources without namespaces that a driver may want to discover.
var clusterScoped = []string{"clusterrolebindings", "clusterroles", "deviceclasses", "devicetaintrules", "namespaces", "nodes", "persistentvolumes", "resourceslices"}

// discover answers with the resources of a version: /api/v1 or /apis/GROUP/VERSION.
func discover(w http.ResponseWriter, r request) {
	resources := []object{}
	for name, kind := range kinds(r.apiVersion) {
		resources = append(resources, object{
			"name": name, "kind": kind, "namespaced": !slices.Contains(clusterScoped, name),
			"verbs": []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
	}
	answer(w, http.StatusOK, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": r.apiVersion, "resources": resources})
}
