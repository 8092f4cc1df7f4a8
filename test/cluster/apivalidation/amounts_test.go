// SPDX-License-Identifier: Apache-2.0

package apivalidation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// The policy admits amounts between two steps, which the scheduler rounds up. It refuses amounts
// without a unit.
func TestAmountsOfMemoryThatAPolicyRefuses(t *testing.T) {
	policy := requestsPolicy(t)
	for memory, refused := range map[string]string{
		"10Gi":           "",
		"1.5Gi":          "",
		"0.5Ti":          "",
		"1Pi":            "",
		"10737418240":    "",
		"1048576e4":      "",
		"1048576":        "",
		"2000000001":     "",
		"1e9":            "",
		"20G":            "",
		"1025Ki":         "",
		"2147483648500m": "",

		"1M":      "1M is less than 1Mi; write the amount with its unit",
		"1048575": "1048575 is less than 1Mi",
		"10":      "10 is less than 1Mi",
	} {
		for class, kind := range map[string]string{"mps.nvidia.com": "gpu", "mig.nvidia.com": "mig"} {
			t.Run(class+" "+memory, func(t *testing.T) {
				claim, err := claimOf(class, memory)
				if err != nil {
					t.Fatal(err)
				}
				said := judge(t.Context(), policy, claim, class, kind)
				if (refused == "") != (said == "") || !strings.Contains(said, refused) {
					t.Errorf("it is said %q, want %q", said, refused)
				}
				if said != "" && !strings.HasPrefix(said, "spec.devices.requests[0].exactly.capacity.requests.memory: ") {
					t.Errorf("it is said %q, want the path of the field", said)
				}
			})
		}
	}
}

// claimOf returns a claim for some memory of a device of the class. It has the form
// in which the API server reads it.
func claimOf(class, memory string) (*resourcev1.ResourceClaim, error) {
	manifest := fmt.Sprintf(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": {"requests": [
		{"name": "gpu", "exactly": {"deviceClassName": %q, "capacity": {"requests": {"memory": %q}}}}]}}}`, class, memory)
	claim := &resourcev1.ResourceClaim{}
	return claim, json.Unmarshal([]byte(manifest), claim)
}

// judge returns the message with which a policy refuses a claim, or "" if it admits the
// claim.
func judge(ctx context.Context, policy validating.Validator, claim *resourcev1.ResourceClaim, class, kind string) string {
	gvk := resourcev1.SchemeGroupVersion.WithKind("ResourceClaim")
	gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	asked := &admission.VersionedAttributes{
		Attributes:      admission.NewAttributesRecord(claim, nil, gvk, claim.Namespace, claim.Name, gvr, "", admission.Create, &metav1.CreateOptions{}, false, nil),
		VersionedKind:   gvk,
		VersionedObject: admission.NewLazyObject(claim),
	}
	named := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class, Labels: map[string]string{"gpu.nvidia.com/type": kind}}}
	result := policy.Validate(ctx, gvr, asked, named, &corev1.Namespace{}, apiservercel.RuntimeCELCostBudget, nil)
	var said []string
	for _, d := range result.Decisions {
		if d.Action != validating.ActionAdmit {
			said = append(said, d.Message)
		}
	}
	return strings.Join(said, "\n")
}

// requestsPolicy is the chart's for requests, compiled as the API server does it.
func requestsPolicy(t *testing.T) validating.Validator {
	t.Helper()
	text, err := os.ReadFile("../../../deployments/static/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var policy admissionv1.ValidatingAdmissionPolicy
		if !strings.Contains(document, "\nkind: ValidatingAdmissionPolicy\n") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		if policy.Name == "gpu-dra-driver-requests" {
			return compiled(t, policy)
		}
	}
	t.Fatal("install.yaml has no policy for requests")
	return nil
}

func compiled(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	environments := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	compiler, err := plugincel.NewCompositedCompiler(environments)
	if err != nil {
		t.Fatal(err)
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.StoredExpressions)
		if result.Error != nil {
			t.Fatalf("%s: %v", v.Name, result.Error)
		}
	}
	var conditions, expressions, messages []plugincel.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	for _, v := range policy.Spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: v.Expression})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	condition := func(all []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		return compiler.CompileCondition(all, options, environment.StoredExpressions)
	}
	matcher := matchconditions.NewMatcher(condition(conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	return validating.NewValidator(condition(expressions), matcher, condition(nil), condition(messages), policy.Spec.FailurePolicy, nil)
}
