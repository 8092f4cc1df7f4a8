// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// The role may change nodes and end pods, so only a cluster's administrator binds it.
func TestNoUserHasTheRoleOfOperatorsUntilItIsBound(t *testing.T) {
	r := mustRender(t, cluster{}, "")
	role := find[rbacv1.ClusterRole](t, r, "ClusterRole", "gpu-dra-driver-operator")
	for label := range role.Labels {
		if label == "rbac.authorization.k8s.io/aggregate-to-admin" || label == "rbac.authorization.k8s.io/aggregate-to-edit" || label == "rbac.authorization.k8s.io/aggregate-to-view" {
			t.Errorf("users of other roles have its rights: %s", label)
		}
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, "secrets") {
			t.Errorf("rule %+v is more than the commands need", rule)
		}
	}
	for _, m := range r.manifests {
		for _, ref := range []rbacv1.RoleRef{roleOf[rbacv1.ClusterRoleBinding](t, m, "ClusterRoleBinding"), roleOf[rbacv1.RoleBinding](t, m, "RoleBinding")} {
			if ref.Name == role.Name {
				t.Errorf("the chart binds it:\n%s", m)
			}
		}
	}
}

// roleOf returns the role that a binding of the kind binds. It is empty for other manifests.
func roleOf[T rbacv1.ClusterRoleBinding | rbacv1.RoleBinding](t *testing.T, manifest, kind string) rbacv1.RoleRef {
	t.Helper()
	if kindOf(t, manifest) != kind {
		return rbacv1.RoleRef{}
	}
	switch b := any(decode[T](t, manifest)).(type) {
	case *rbacv1.ClusterRoleBinding:
		return b.RoleRef
	case *rbacv1.RoleBinding:
		return b.RoleRef
	}
	return rbacv1.RoleRef{}
}
