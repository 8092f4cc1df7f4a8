// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Nodes are changed by one pod of the cluster, if an administrator wants it.
func TestOnlyThePodForLabelsChangesNodes(t *testing.T) {
	changesNodes := func(values string) (roles []string) {
		for _, m := range mustRender(t, cluster{}, values).manifests {
			if kindOf(t, m) != "ClusterRole" {
				continue
			}
			role := decode[rbacv1.ClusterRole](t, m)
			if role.Name == "gpu-dra-driver-operator" {
				continue // no account of the chart has it
			}
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "nodes") && (slices.Contains(rule.Verbs, "patch") || slices.Contains(rule.Verbs, "update")) {
					roles = append(roles, role.Name)
				}
			}
		}
		return roles
	}
	if got := changesNodes(""); len(got) != 0 {
		t.Errorf("by default %q change nodes, want none", got)
	}
	const name, values = "gpu-dra-driver-node-labels", "nodeLabels: {enabled: true}\ndriverName: gpu.example.com"
	if got := changesNodes(values); !slices.Equal(got, []string{name}) {
		t.Errorf("%q change nodes, want %s alone", got, name)
	}
	r := mustRender(t, cluster{}, values)
	pod := find[appsv1.Deployment](t, r, "Deployment", name).Spec.Template.Spec
	if got := pod.Containers[0]; pod.ServiceAccountName != name || !slices.Equal(got.Command, []string{"gpu-kubelet-plugin", "label-nodes"}) || !slices.Equal(got.Args, []string{"--driver-name=gpu.example.com"}) {
		t.Errorf("the pod of %s runs %q %q", pod.ServiceAccountName, got.Command, got.Args)
	}
	policy := find[admissionv1.ValidatingAdmissionPolicy](t, r, "ValidatingAdmissionPolicy", name)
	if got := policy.Spec.MatchConditions[0].Expression; !strings.HasSuffix(got, "'system:serviceaccount:gpu-dra-driver:"+name+"'") {
		t.Errorf("the policy is for %s, want the account of the pod", got)
	}
}
