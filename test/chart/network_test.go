// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
		if err := yaml.UnmarshalStrict([]byte(m), &policy); err != nil {
			t.Fatal(err)
		}
		policies[policy.Labels["app.kubernetes.io/component"]] = policy.Spec
	}
	return policies
}

func TestOnlyTheNamespaceOfMonitoringReachesTheAgentsPort(t *testing.T) {
	policies := networkPolicies(t, "")
	agent := policies["agent"]
	if len(agent.Ingress) != 1 || len(agent.Ingress[0].From) != 1 || len(agent.Ingress[0].Ports) != 1 {
		t.Fatalf("the agent's rules: %+v, want one with one peer and one port", agent.Ingress)
	}
	if got := agent.Ingress[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]; got != "monitoring" {
		t.Errorf("pods of namespace %q may reach the agent, want those of monitoring", got)
	}
	if got := agent.Ingress[0].Ports[0].Port.String(); got != "http" {
		t.Errorf("they may reach port %s, want http", got)
	}
	for component, spec := range policies {
		if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, spec.PolicyTypes); diff != "" {
			t.Errorf("%s: what the policy is for (-want +got):\n%s", component, diff)
		}
	}
	if got, ok := policies["supervisor"]; !ok || len(got.Ingress) != 0 {
		t.Errorf("the supervisor's policy: %+v, want one that admits no peer", got)
	}
}

// In a NetworkPolicy an empty list of peers means all of them.
func TestAnEmptyListOfPeersAdmitsNoPeer(t *testing.T) {
	if got := networkPolicies(t, "networkPolicy: {from: []}")["agent"]; len(got.PolicyTypes) != 1 || len(got.Ingress) != 0 {
		t.Errorf("the agent's policy: %+v, want one that admits no peer", got)
	}
}

func TestNetworkPoliciesCanBeLeftOut(t *testing.T) {
	if got := networkPolicies(t, "networkPolicy: {enabled: false}"); len(got) != 0 {
		t.Errorf("policies: %v, want none", got)
	}
}
