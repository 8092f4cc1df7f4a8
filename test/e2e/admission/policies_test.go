// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The API server stores expressions that do not fit the types of the matched
// objects. It warns of them in the policy's status.
func TestExpressionsFitTheTypesTheyAreFor(t *testing.T) {
	for name, policy := range world.policies {
		t.Run(name, func(t *testing.T) {
			var warnings []any
			err := harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
				now, err := world.of(policy).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return false, "", err
				}
				seen, _, err := unstructured.NestedInt64(now.Object, "status", "observedGeneration")
				if err != nil || seen != now.GetGeneration() {
					return false, "its types have not been checked", err
				}
				warnings, _, err = unstructured.NestedSlice(now.Object, "status", "typeChecking", "expressionWarnings")
				return true, "", err
			})
			must(t, err)
			for _, w := range warnings {
				t.Errorf("%v", w)
			}
		})
	}
}

// The driver, the scheduler and the garbage collector accept claims that are older
// than the policies. The policies would refuse these claims.
func TestOlderObjectsCanStillBeChanged(t *testing.T) {
	for _, o := range world.before {
		for what, patch := range map[string]string{
			"a finalizer": `{"metadata":{"finalizers":["resource.kubernetes.io/delete-protection"]}}`,
			"an owner":    `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"pod","uid":"1"}]}}`,
			"a label":     `{"metadata":{"labels":{"a":"b"}}}`,
		} {
			_, err := world.of(o).Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%s %s, %s: %v", o.GetKind(), o.GetName(), what, err)
			}
		}
	}
}

func TestAClassIsJudgedWhenItChanges(t *testing.T) {
	class := object("resource.k8s.io/v1", "DeviceClass", "", "limited.example.com")
	for what, c := range map[string]struct{ patch, refused string }{
		"a limit":           {`{"metadata":{"labels":{"gpu.nvidia.com/max-memory":"40Gi"}}}`, ""},
		"a misspelt limit":  {`{"metadata":{"labels":{"gpu.nvidia.com/maxmemory":"40Gi"}}}`, "gpu.nvidia.com/maxmemory has no meaning"},
		"no type any more":  {`{"metadata":{"labels":{"gpu.nvidia.com/type":null}}}`, "gpu.nvidia.com/type must be"},
		"parameters":        {`{"spec":{"config":[{"opaque":{"driver":"gpu.nvidia.com","parameters":{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"ShareConfig"}}}]}}`, ""},
		"wrong parameters":  {`{"spec":{"config":[{"opaque":{"driver":"gpu.nvidia.com","parameters":{"kind":"ShareConfig"}}}]}}`, "spec.config[0].opaque.parameters: apiVersion and kind"},
		"an extended name":  {`{"spec":{"extendedResourceName":"example.com/gpu"}}`, "spec.extendedResourceName: not in a class with"},
		"a label of others": {`{"metadata":{"labels":{"team":"a"}}}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := world.of(class).Patch(t.Context(), class.GetName(), types.MergePatchType, []byte(c.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			said, err := refusal(err)
			must(t, err)
			if (c.refused == "") != (said == "") || !strings.Contains(said, c.refused) {
				t.Errorf("it is said %q, want %q", said, c.refused)
			}
		})
	}
}

// A change of the class is in force for the next claim, and its end with the
// class.
func TestALimitFollowsItsClass(t *testing.T) {
	class := object("resource.k8s.io/v1", "DeviceClass", "", "following.example.com")
	class.SetLabels(map[string]string{"gpu.nvidia.com/type": "gpu", "gpu.nvidia.com/max-memory": "10Gi"})
	class.Object["spec"] = map[string]any{}
	asked := claim(tenant, devices{"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{
		"deviceClassName": class.GetName(), "capacity": map[string]any{"requests": map[string]any{"memory": "20Gi"}}}}}})
	until := func(refused string) {
		t.Helper()
		err := harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			said, err := refusal(world.try(ctx, asked))
			return (refused == "") == (said == "") && strings.Contains(said, refused), "it is said " + said, err
		})
		must(t, err)
	}
	must(t, world.apply(t.Context(), class))
	until("at most 10Gi of a device")
	class.SetLabels(map[string]string{"gpu.nvidia.com/type": "gpu", "gpu.nvidia.com/max-memory": "15Gi"})
	must(t, world.apply(t.Context(), class))
	until("at most 15Gi of a device")
	must(t, world.of(class).Delete(t.Context(), class.GetName(), metav1.DeleteOptions{}))
	until("")
}

// CEL has a budget, and a claim that is over it is refused. What a claim can
// make use of is within it: as many requests, alternatives and configurations as
// the API admits, each configuration for all of the requests and with a limit for
// each of 32 devices.
func TestTheLargestUsefulClaimIsWithinTheBudget(t *testing.T) {
	var limits []any
	for i := range 32 {
		limits = append(limits, map[string]any{"device": fmt.Sprintf("GPU-6e2cb7f4-3f09-5a2f-8b6c-0a1b2c3d4e%02d", i), "memoryLimit": "10240Mi"})
	}
	whole := map[string]any{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "sharing": map[string]any{
		"strategy": "MPS", "mps": map[string]any{"threadPercentage": int64(50), "memoryLimit": "10Gi", "perDevice": limits}}}
	share := func(strategy string) map[string]any {
		return map[string]any{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "ShareConfig", "strategy": strategy, "containers": int64(2)}
	}
	capacity := map[string]any{"requests": map[string]any{"memory": "10Gi", "compute": "25"}}
	// A firstAvailable of more classes than one is the same work for each.
	for name, d := range map[string]devices{
		"whole GPUs":   largest(map[string]any{"deviceClassName": "gpu.nvidia.com"}, whole),
		"shares":       largest(map[string]any{"deviceClassName": "mps.nvidia.com", "capacity": capacity}, share("MPS")),
		"plain shares": largest(map[string]any{"deviceClassName": "plain.example.com", "capacity": capacity, "count": int64(2)}, share("Plain")),
	} {
		for _, o := range []*unstructured.Unstructured{claim(tenant, d), template(tenant, d)} {
			said, err := refusal(world.try(t.Context(), o))
			must(t, err)
			if said != "" {
				t.Errorf("%s, %s: %s", name, o.GetKind(), said)
			}
		}
	}
}

// largest returns as many requests with alternatives, and as many configurations of all of them,
// as the API admits.
func largest(alternative, config map[string]any) devices {
	var requests, named, configs []any
	for i := range 32 {
		var alternatives []any
		for j := range 8 {
			one := maps.Clone(alternative)
			one["name"] = fmt.Sprintf("a%d", j)
			alternatives = append(alternatives, one)
		}
		requests = append(requests, map[string]any{"name": fmt.Sprintf("r%d", i), "firstAvailable": alternatives})
		named = append(named, fmt.Sprintf("r%d", i))
	}
	for range 32 {
		entry := parameters(config)
		entry["requests"] = named
		configs = append(configs, entry)
	}
	return devices{"requests": requests, "config": configs}
}

// A message names one mistake, however many there are and however long.
func TestMessagesAreShort(t *testing.T) {
	var wrong []any
	for range 200 {
		wrong = append(wrong, map[string]any{"device": "gpu", "memoryLimit": "x"})
	}
	for name, document := range map[string]map[string]any{
		"many devices":    {"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "sharing": map[string]any{"strategy": "MPS", "mps": map[string]any{"perDevice": wrong}}},
		"a long field":    {"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "ShareConfig", strings.Repeat("x", 9000): "x"},
		"a long kind":     {"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": strings.Repeat("x", 9000)},
		"a field of text": {"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "ShareConfig", "a\nb": "x"},
		"a long device": {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": map[string]any{"strategy": "MPS", "mpsConfig": map[string]any{
			"defaultPerDevicePinnedMemoryLimit": map[string]any{strings.Repeat("x", 9000): "x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := refusal(world.try(t.Context(), claim(tenant, devices{"config": []any{parameters(document)}})))
			must(t, err)
			if !strings.Contains(said, "config[0].opaque.parameters") || len(said) > 500 || strings.Contains(said, "\n") {
				t.Errorf("it is said, in %d bytes: %q", len(said), said)
			}
		})
	}
}

var must = require.NoError

// before returns claims that a user created before the policies.
func before() []*unstructured.Unstructured {
	wrong := devices{
		"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{
			"deviceClassName": "limited.example.com", "capacity": map[string]any{"requests": map[string]any{"mem": "40Gi"}}}}},
		"config": []any{parameters(map[string]any{"kind": "GPUConfig"})},
	}
	c, t := claim(tenant, wrong), template(tenant, wrong)
	c.SetName("before")
	t.SetName("before")
	return []*unstructured.Unstructured{c, t}
}
