// SPDX-License-Identifier: Apache-2.0

// Package karpenter tests which claims make Karpenter add a node that does not exist yet, if its provider knows our
// ResourceSlices of such a node. It tests the release in karpenter.mod (go test -modfile karpenter.mod). Karpenter's own
// allocator decides.
package karpenter

import (
	"fmt"
	"testing"
	"unique"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/pins/published"
)

const root = "../../../.."

func TestClaimsThatFitANodeThatDoesNotExistYet(t *testing.T) {
	slices, classes := published.Slices(t, root), classes(t)
	for name, tc := range map[string]struct {
		slices, class, request string
		want                   int
	}{
		"a GPU":                         {"dgx-h100", "gpu.nvidia.com", "", 8},
		"four GPUs of an NVLink domain": {"dgx-h100", "gpu.nvidia.com", "count: 4", 2},
		"nine GPUs":                     {"dgx-h100", "gpu.nvidia.com", "count: 9", 0},
		"a GPU of another product":      {"dgx-h100", "gpu.nvidia.com", selector("productName == 'Tesla T4'"), 0},
		"a share of 10Gi":               {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 10Gi}}", 56},
		"a share of 40 GiB and 50 %":    {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 39Gi, compute: 50}}", 16},
		"a share larger than a GPU":     {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 100Gi}}", 0},
		// The node has 32. Karpenter charges the counter that the kinds of a GPU share for each claim, the scheduler once.
		"a slot":                               {"timeslice-dgx-h100", "timeslice.nvidia.com", "", 8},
		"the smallest MIG device on demand":    {"mig-dgx-h100", "mig-1g.10gb", "", 56},
		"a MIG device of half a GPU on demand": {"mig-dgx-h100", "mig-3g.40gb", "", 16},
		"a MIG device of a layout":             {"mig-layout-dgx-h100", "mig-1g.10gb", "", 12},
	} {
		t.Run(name, func(t *testing.T) {
			if slices[tc.slices] == nil {
				t.Fatalf("no golden slices %s", tc.slices)
			}
			if got := fitting(t, slices[tc.slices], classes, tc.class, tc.request); got != tc.want {
				t.Errorf("%d claims fit, want %d", got, tc.want)
			}
		})
	}
}

// fitting returns how many equal claims fit a new node, at most 100.
func fitting(t *testing.T, slices []resourceapi.ResourceSlice, classes client.Client, class, request string) int {
	node := &newNode{slices: templates(slices)}
	allocator := dynamicresources.NewAllocator(nil, dynamicresources.AllocatedDeviceState{}, nil, classes, nil)
	for i := range 100 {
		result, err := allocator.Allocate(t.Context(), node, []*resourceapi.ResourceClaim{claim(t, fmt.Sprint("claim-", i), class, request)})
		if err != nil {
			t.Logf("claim %d: %v", i, err)
			return i
		}
		result.Allocation.Commit(t.Context())
	}
	return 100
}

// newNode is a node that Karpenter would add, of one type.
type newNode struct {
	slices []dynamicresources.ResourceSlice
}

var instanceType = unique.Make("type")

func (*newNode) ID() dynamicresources.NodeClaimID        { return unique.Make("node") }
func (*newNode) NodeName() string                        { return "" }
func (*newNode) NodePoolID() dynamicresources.NodePoolID { return unique.Make("pool") }
func (*newNode) Requirements() scheduling.Requirements   { return scheduling.NewRequirements() }
func (*newNode) InstanceTypes() []dynamicresources.InstanceTypeID {
	return []dynamicresources.InstanceTypeID{instanceType}
}
func (n *newNode) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	return map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice{instanceType: n.slices}
}

// templates returns the slices as a provider would know them before the node exists.
func templates(slices []resourceapi.ResourceSlice) []dynamicresources.ResourceSlice {
	var all []dynamicresources.ResourceSlice
	for i := range slices {
		published := dynamicresources.NewAPIServerSlice(&slices[i])
		all = append(all, dynamicresources.NewTemplateSlice(&cloudprovider.ResourceSliceTemplate{
			Driver: published.Driver(), Pool: published.Pool(), Devices: published.Devices(), SharedCounters: published.SharedCounters(),
		}))
	}
	return all
}

func selector(expression string) string {
	return fmt.Sprintf("selectors: [{cel: {expression: %q}}]", "device.attributes['gpu.nvidia.com']."+expression)
}

func claim(t *testing.T, name, class, request string) *resourceapi.ResourceClaim {
	t.Helper()
	exactly := resourceapi.ExactDeviceRequest{AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	if err := yaml.UnmarshalStrict([]byte("deviceClassName: "+class+"\n"+request), &exactly); err != nil {
		t.Fatal(err)
	}
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: resourceapi.ResourceClaimSpec{
		Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &exactly}}},
	}}
}

// classes returns a client with the shipped classes.
func classes(t *testing.T) client.Client {
	t.Helper()
	all := fake.NewClientBuilder().WithScheme(scheme.Scheme)
	for _, document := range published.Documents(t, root, "deployments/static/install.yaml", "DeviceClass") {
		var class resourceapi.DeviceClass
		if err := yaml.Unmarshal(document, &class); err != nil {
			t.Fatal(err)
		}
		all = all.WithObjects(&class)
	}
	return all.Build()
}
