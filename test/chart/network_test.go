// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func networkPolicies(t *testing.T, values string) map[string]networkingv1.NetworkPolicySpec {
	t.Helper()
	policies := map[string]networkingv1.NetworkPolicySpec{}
	for _, m := range mustRender(t, cluster{}, values).manifests {
		if kindOf(t, m) != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		must(t, yaml.UnmarshalStrict([]byte(m), &policy))
		policies[policy.Labels["app.kubernetes.io/component"]] = policy.Spec
	}
	return policies
}

// In a NetworkPolicy an empty list of peers means all of them.
func TestAnEmptyListOfPeersAdmitsNoPeer(t *testing.T) {
	if got := networkPolicies(t, "networkPolicy: {from: []}")["agent"]; len(got.PolicyTypes) != 1 || len(got.Ingress) != 0 {
		t.Errorf("the agent's policy: %+v, want one that admits no peer", got)
	}
}
