// SPDX-License-Identifier: Apache-2.0

package apivalidation

import (
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// An API server admits the expressions that the one of the release before could
// read. The oldest that the chart admits is 1.34.
func TestThePoliciesAreReadByTheOldestAPIServer(t *testing.T) {
	var documents []string
	for _, file := range []string{"deployments/static/install.yaml", "demo/tenancy/team-class.yaml", "demo/tenancy/reserved.yaml"} {
		text, err := os.ReadFile("../../../" + file)
		must(t, err)
		documents = append(documents, strings.Split(string(text), "\n---\n")...)
	}
	var tried int
	for _, document := range documents {
		if !strings.Contains(document, "\nkind: ValidatingAdmissionPolicy\n") {
			continue
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		must(t, yaml.UnmarshalStrict([]byte(document), &policy))
		tried++
		t.Run(policy.Name, func(t *testing.T) {
			compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 33)))
			must(t, err)
			options := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
			compile := func(expression plugincel.ExpressionAccessor) {
				if result := compiler.CompileCELExpression(expression, options, environment.NewExpressions); result.Error != nil {
					t.Errorf("%s: %v", expression.GetExpression(), result.Error)
				}
			}
			for _, v := range policy.Spec.Variables {
				if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.NewExpressions); result.Error != nil {
					t.Errorf("%s: %v", v.Name, result.Error)
				}
			}
			for _, c := range policy.Spec.MatchConditions {
				compile((*matchconditions.MatchCondition)(&c))
			}
			for _, v := range policy.Spec.Validations {
				compile(&validating.ValidationCondition{Expression: v.Expression})
				if v.MessageExpression != "" {
					compile(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
				}
			}
		})
	}
	if tried < 5 {
		t.Errorf("%d policies in the manifests", tried)
	}
}
