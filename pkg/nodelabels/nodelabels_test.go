// SPDX-License-Identifier: Apache-2.0

package nodelabels_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/pkg/nodelabels"
)

const driver = "gpu.nvidia.com"

// slice returns the slice of a node with a GPU of each product.
func slice(node string, generation int64, products ...string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, generation)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: 1},
		},
	}
	for i, product := range products {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%02x-00", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": {StringValue: ptr.To("gpu")}, "productName": {StringValue: &product},
				"fabricClusterUUID": {StringValue: ptr.To("5d6e29b4-1d0c-4c8e-9f3a-72b1c0ffee72")}, "fabricCliqueID": {IntValue: ptr.To(int64(7))},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: "gpu-00-00-ts", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: ptr.To("timeslice")}}})
	return s
}

func show(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

const (
	clique = "nvidia.com/gpu.clique=5d6e29b4-1d0c-4c8e-9f3a-72b1c0ffee72.7"
	h100   = clique + " nvidia.com/gpu.count=2 nvidia.com/gpu.memory=81920 nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"
)

func TestLabelsDescribeTheGPUsOfANode(t *testing.T) {
	old := slice("a", 1, "NVIDIA T4")
	partial := slice("a", 2, "NVIDIA H100 80GB HBM3")
	partial.Spec.Pool.ResourceSliceCount = 2
	odd := slice("a", 1, "NVIDIA \u202eH100", "NVIDIA \u202eH100")
	for name, c := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		want   string
		ok     bool
	}{
		"two GPUs, and a time slice":      {[]*resourceapi.ResourceSlice{slice("a", 1, "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")}, h100, true},
		"slices of an earlier generation": {[]*resourceapi.ResourceSlice{old, slice("a", 2, "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")}, h100, true},
		"different GPUs":                  {[]*resourceapi.ResourceSlice{slice("a", 1, "NVIDIA L40S", "NVIDIA A30")}, clique + " nvidia.com/gpu.count=2 nvidia.com/gpu.memory=81920", true},
		"a name with odd letters":         {[]*resourceapi.ResourceSlice{odd}, clique + " nvidia.com/gpu.count=2 nvidia.com/gpu.memory=81920", true},
		"half of the slices":              {[]*resourceapi.ResourceSlice{partial}, clique + " nvidia.com/gpu.count=1 nvidia.com/gpu.memory=81920 nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3", false},
		"no slices":                       {nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			labels, ok := nodelabels.Labels(c.slices)
			if got := show(labels); got != c.want || ok != c.ok {
				t.Errorf("labels %q, complete %v, want %q, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// cluster is an API server with a controller.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
}

func start(t *testing.T, nodes ...*corev1.Node) *cluster {
	t.Helper()
	c := &cluster{t, fake.NewClientset()}
	for _, node := range nodes {
		// A tracker records owners of fields only for objects that a client writes.
		if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{FieldManager: "kubelet"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- nodelabels.Run(ctx, c.client, driver) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cluster) publish(s *resourceapi.ResourceSlice) {
	c.t.Helper()
	if _, err := c.client.ResourceV1().ResourceSlices().Create(c.t.Context(), s, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// wants waits until a node has these labels.
func (c *cluster) wants(node, want string) {
	c.t.Helper()
	var got string
	err := wait.PollUntilContextTimeout(c.t.Context(), 10*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		n, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		got = show(n.Labels)
		return got == want, nil
	})
	if err != nil {
		c.t.Fatalf("node %s has the labels %q, want %q: %v", node, got, want, err)
	}
}

func TestTheLabelsComeAndGoWithTheSlices(t *testing.T) {
	t.Parallel()
	c := start(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "one"}}})
	s := slice("a", 1, "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
	c.publish(s)
	c.wants("a", h100+" zone=one")
	if err := c.client.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wants("a", "zone=one")
}

func TestLabelsOfOthersStay(t *testing.T) {
	t.Parallel()
	c := start(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "discovered", Labels: map[string]string{"nvidia.com/gfd.timestamp": "1", "nvidia.com/gpu.count": "8"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"nvidia.com/gpu.product": "mine"}}},
	)
	c.publish(slice("mine", 1, "NVIDIA H100 80GB HBM3"))
	c.publish(slice("discovered", 1, "NVIDIA H100 80GB HBM3"))
	c.wants("mine", clique+" nvidia.com/gpu.count=1 nvidia.com/gpu.memory=81920 nvidia.com/gpu.product=mine")
	c.wants("discovered", "nvidia.com/gfd.timestamp=1 nvidia.com/gpu.count=8")
}

func TestLabelsEndWhenFeatureDiscoveryComes(t *testing.T) {
	t.Parallel()
	c := start(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	c.publish(slice("a", 1, "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"))
	c.wants("a", h100)
	discovery := corev1ac.Node("a").WithLabels(map[string]string{"nvidia.com/gfd.timestamp": "1", "nvidia.com/gpu.count": "8"})
	if _, err := c.client.CoreV1().Nodes().Apply(t.Context(), discovery, metav1.ApplyOptions{FieldManager: "nfd", Force: true}); err != nil {
		t.Fatal(err)
	}
	c.wants("a", "nvidia.com/gfd.timestamp=1 nvidia.com/gpu.count=8")
}
