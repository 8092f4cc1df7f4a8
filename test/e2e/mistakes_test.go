// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A pod whose container uses two shares, one of them less than the least share, starts. Events and
// conditions name the amounts and limits that its container gets instead.
func TestMistakesInClaimsAreEventsAndConditions(t *testing.T) {
	runWithDriver(t, "gpu-1b-00", "dgx-h100", "--reconcile-interval=2s")
	ns := namespaceFor(t, "mistakes")
	both := strings.NewReplacer(
		"  resourceClaims:\n", "  resourceClaims:\n  - name: b\n    resourceClaimName: b\n",
		"      - name: a\n", "      - name: a\n      - name: b\n",
	).Replace(cudaPod("both", []string{"a"}))
	apply(t, ns, share("a", "512Mi", "")+share("b", "10Gi", "")+both)
	ready(t, ns, "both")
	for _, e := range []struct {
		reason, text string
		claims       []string
	}{
		{v1alpha1.ConditionShareRoundedUp, "Claim a requests 512Mi of memory", []string{"a"}},
		{v1alpha1.ConditionSeveralShares, "Container main of pod both uses the shares of the claims a, b", []string{"a", "b"}},
	} {
		must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
			out, err := cluster.Kubectl(ctx, "--namespace", ns, "get", "events", "--field-selector", "type=Warning,reason="+e.reason,
				"--output", "jsonpath={range .items[*]}{.involvedObject.kind}/{.involvedObject.name} {.message}{\"\\n\"}{end}")
			want := append([]string{"Pod/both " + e.text}, prefixed("ResourceClaim/", e.claims, " "+e.text)...)
			for _, line := range want {
				if !strings.Contains(out, line) {
					return false, fmt.Sprintf("no event %q in\n%s", line, out), err
				}
			}
			return strings.Count(out, "\n") == len(want), "too many events:\n" + out, err
		}))
		for _, name := range e.claims {
			must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
				claim, err := cluster.Client.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
				if err != nil || len(claim.Status.Devices) != 1 {
					return false, "status.devices does not have the device", err
				}
				all := claim.Status.Devices[0].Conditions
				return meta.IsStatusConditionTrue(all, e.reason), fmt.Sprintf("claim %s has the conditions %+v", name, all), nil
			}))
		}
	}
	remove(t, ns, "both")
	nothingLeft(t)
}

// prefixed returns the names with a text before and after each.
func prefixed(before string, names []string, after string) []string {
	var all []string
	for _, name := range names {
		all = append(all, before+name+after)
	}
	return all
}
