// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestTheConflictsOfAHeldDeviceAreConditionsOfItsClaim(t *testing.T) {
	c := holding("one")
	p := newTestPlugin(fake.NewClientset(testNode(), allocated("one")), c)
	c.foreign = []claim.ForeignProcess{{Device: kindtest.Name("gpu-1b-00"), Claims: []types.UID{"uid-one"}, PID: 4711}}
	conflicts := []Conflict{ConflictDevicePlugin, ConflictOtherDriver}
	p.Conflicts = func(_ context.Context, device kind.Name) []Conflict {
		if device != kindtest.Name("gpu-1b-00") {
			t.Errorf("conflicts of %q", device)
		}
		return conflicts
	}
	types := func() (all []string) {
		p.reconcile(t.Context())
		for _, condition := range p.status.wanted["uid-one"].devices[0].conditions() {
			all = append(all, condition.Type+"="+string(condition.Status)+" "+condition.Reason)
		}
		return all
	}
	want := []string{"Ready=True Prepared", "ForeignProcess=True NoClaim", "ExternallyAllocated=True DevicePlugin", "OtherDriver=True SameName"}
	if diff := cmp.Diff(want, types()); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	written := p.status.wanted["uid-one"].devices[0]
	written.data = nil
	entry := resourceapi.AllocatedDeviceStatus{Driver: testDriver, Pool: "node", Device: "gpu-1b-00", Conditions: written.conditions()}
	entry.Conditions = append(entry.Conditions, metav1.Condition{Type: "example.com/Watched", Status: metav1.ConditionTrue})
	if !written.matches(entry, testDriver) {
		t.Error("a status that is up to date is written again")
	}
	for i, kind := range []string{v1alpha1.ConditionExternallyAllocated, v1alpha1.ConditionOtherDriver} {
		ended := written
		ended.more = append(written.more[:1:1], written.more[2-i])
		if ended.matches(entry, testDriver) {
			t.Errorf("the condition %s stays after the conflict has ended", kind)
		}
	}
	conflicts, c.foreign = nil, nil
	if diff := cmp.Diff(want[:1], types()); diff != "" {
		t.Errorf("conditions after the conflicts have ended (-want +got):\n%s", diff)
	}
}
