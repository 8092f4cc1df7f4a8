// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestPrepareReturnsTheShareIDToTheKubelet(t *testing.T) {
	share := types.UID("share-1")
	p := newTestPlugin(fake.NewClientset(), &claims{prepare: func(*resourceapi.ResourceClaim) ([]claim.Device, error) {
		return []claim.Device{{Request: "gpu", Pool: "node", Name: kindtest.Name("gpu-1b-00"), ShareID: &share, CDIDeviceIDs: []string{"gpu.nvidia.com/claim=one"}}}, nil
	}})
	one := allocated("one")
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{one})
	if err != nil {
		t.Fatal(err)
	}
	got := results[one.UID].Devices
	for i := range got {
		got[i].Metadata = nil
	}
	want := []kubeletplugin.Device{{
		Requests: []string{"gpu"}, PoolName: "node", DeviceName: "gpu-1b-00", ShareID: &share, CDIDeviceIDs: []string{"gpu.nvidia.com/claim=one"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestNothingIsPublishedBeforeTheKubeletHasRegisteredThePlugin(t *testing.T) {
	client := fake.NewClientset()
	p := newTestPlugin(client, &claims{})
	p.registration = newRegistration()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the agent ends"))
	if err := p.Publish(ctx, resourceslice.DriverResources{}); err == nil {
		t.Error("published, want an error: the kubelet has not registered the plugin")
	}
	if got := client.Actions(); len(got) != 0 {
		t.Errorf("requests to the API server: %v, want none yet", got)
	}
}
