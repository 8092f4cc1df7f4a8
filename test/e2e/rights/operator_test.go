// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// operatorAttempts: an administrator of GPUs takes them out of use, and evicts pods. All that
// may end or move a tenant's work is refused to viewers.
func operatorAttempts() []attempt {
	return []attempt{
		{"create", "devicetaintrules", "for a cordon", []who{operator}, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().DeviceTaintRules().Create(ctx, ruleOf("try"), metav1.CreateOptions{DryRun: dryRun()})
			return err
		}},
		{"patch", "devicetaintrules", "of a cordon", nil, "", func(ctx context.Context, as who) error {
			_, err := world.clients[as].ResourceV1().DeviceTaintRules().Patch(ctx, "rule", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun()})
			return err
		}},
		{"delete", "devicetaintrules", "of a cordon", []who{operator}, "", func(ctx context.Context, as who) error {
			return world.clients[as].ResourceV1().DeviceTaintRules().Delete(ctx, "rule", metav1.DeleteOptions{DryRun: dryRun()})
		}},
		{"create", "pods/eviction", "of a user's pod", []who{operator}, "", func(ctx context.Context, as who) error {
			return world.clients[as].PolicyV1().Evictions(tenant).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "to-evict"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun()},
			})
		}},
		{"delete", "pods", "of a user's namespace", nil, "", func(ctx context.Context, as who) error {
			return world.clients[as].CoreV1().Pods(tenant).Delete(ctx, "to-evict", metav1.DeleteOptions{DryRun: dryRun()})
		}},
	}
}
