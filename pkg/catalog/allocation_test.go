// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// classes returns the DeviceClasses that are shipped. It adds the class of seats,
// which the chart's defaults do not have. Tests must not change them.
func classes(t testing.TB) []*resourceapi.DeviceClass {
	t.Helper()
	all, err := readClasses()
	must(t, err)
	return all
}

var readClasses = sync.OnceValues(func() ([]*resourceapi.DeviceClass, error) {
	all, err := allocator.ReadClasses(filepath.Join("..", "..", "deployments", "static", "install.yaml"))
	seats := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "seat.nvidia.com"}}
	seats.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'seat'",
	}}}
	return append(all, seats), err
})

func schedulable(t testing.TB, c catalog.Inputs, node gpu.Node, conditions catalog.Conditions) *allocator.Node {
	t.Helper()
	c.Conditions = conditions
	return allocator.NewNode(catalog.New(c).Resources(node, nil), allocator.Features(), classes(t)...)
}

// claim returns a claim for a GPU or a device of another class. The words are
// "class=mig profile=1g.10gb count=2 memory=10Gi compute=50 match=nvlinkDomain
// distinct=uuid cel=<expression to the end>". count=all is for all devices.
func claim(words string) resourceapi.DeviceClaim {
	request := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu.nvidia.com",
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           1,
	}
	var devices resourceapi.DeviceClaim
	words, expression, selected := strings.Cut(words, "cel=")
	if selected {
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	for _, word := range strings.Fields(words) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "class":
			request.DeviceClassName = value + ".nvidia.com"
		case "profile":
			request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("device.attributes['gpu.nvidia.com'].profile == '%s'", value),
			}}}
		case "count":
			if _, err := fmt.Sscan(value, &request.Count); err != nil {
				request.AllocationMode, request.Count = resourceapi.DeviceAllocationModeAll, 0
			}
		case "match":
			devices.Constraints = append(devices.Constraints, resourceapi.DeviceConstraint{MatchAttribute: attribute(value)})
		case "distinct":
			devices.Constraints = append(devices.Constraints, resourceapi.DeviceConstraint{DistinctAttribute: attribute(value)})
		default:
			if request.Capacity == nil {
				request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
			}
			request.Capacity.Requests[resourceapi.QualifiedName(name)] = resource.MustParse(value)
		}
	}
	devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}}
	return devices
}

// attribute returns the full name of an attribute of this driver or, with a domain, of
// another one.
func attribute(name string) *resourceapi.FullyQualifiedName {
	full := resourceapi.FullyQualifiedName(name)
	if !strings.Contains(name, "/") {
		full = resourceapi.FullyQualifiedName("gpu.nvidia.com/" + name)
	}
	return &full
}

// allocateAll allocates the claims, named a, b, c..., one after the other. It
// returns one line per claim with its devices.
func allocateAll(t *testing.T, node *allocator.Node, claims []resourceapi.DeviceClaim) string {
	t.Helper()
	var lines []string
	for i, c := range claims {
		name := string(rune('a' + i))
		results, err := node.Allocate(t.Context(), name, c)
		switch {
		case errors.Is(err, allocator.ErrNoFit):
			lines = append(lines, name+" does not fit")
			continue
		case err != nil:
			t.Fatalf("claim %s: %v", name, err)
		}
		line := name
		for _, result := range results {
			line += " " + strings.TrimPrefix(result.Device, "gpu-")
			for _, capacity := range []resourceapi.QualifiedName{"memory", "slots", "seats"} {
				if taken, shared := result.ConsumedCapacity[capacity]; shared {
					line += " " + taken.String()
				}
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestTheSchedulerAllocates(t *testing.T) {
	exclusive := sharing()
	exclusive.Exclusive = true
	lists := sharing()
	lists.ListAttributes = true
	for name, tc := range map[string]struct {
		catalog    catalog.Inputs
		node       gpu.Node
		conditions catalog.Conditions
		claims     []resourceapi.DeviceClaim
		want       string
	}{
		"claims without a capacity get whole GPUs, one after the other": {
			catalog: sharing(), node: h100(t, 2),
			claims: []resourceapi.DeviceClaim{claim(""), claim(""), claim("")},
			want:   "a 1b-00 81559Mi\nb 43-00 81559Mi\nc does not fit",
		},
		"the devices of a count are different GPUs": {
			catalog: sharing(), node: h100(t, 3),
			claims: []resourceapi.DeviceClaim{claim("count=2"), claim("count=2")},
			want:   "a 1b-00 81559Mi 43-00 81559Mi\nb does not fit",
		},
		"shares fill a GPU to the last step and keep a whole request out": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{claim("memory=40Gi"), claim(""), claim("memory=40Gi"), claim("memory=38899Mi"), claim("memory=1699Mi"), claim("memory=1Mi")},
			want:   "a 1b-00 40Gi\nb does not fit\nc does not fit\nd 1b-00 38899Mi\ne 1b-00 1699Mi\nf does not fit",
		},
		"a whole GPU keeps shares out": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{claim(""), claim("memory=1Mi"), claim("memory=1Mi compute=1")},
			want:   "a 1b-00 81559Mi\nb does not fit\nc does not fit",
		},
		"a whole request passes over a GPU that is shared": {
			catalog: sharing(), node: h100(t, 2),
			claims: []resourceapi.DeviceClaim{claim("memory=2Gi"), claim(""), claim("memory=2Gi")},
			want:   "a 1b-00 2Gi\nb 43-00 81559Mi\nc 1b-00 2Gi",
		},
		"a request is rounded up to whole steps": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{claim("memory=1"), claim("memory=2000000000"), claim("memory=10G")},
			want:   "a 1b-00 1699Mi\nb 1b-00 1908Mi\nc 1b-00 9537Mi",
		},
		"compute is reserved up to all of it": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{claim("memory=2Gi compute=60"), claim("memory=2Gi compute=41"), claim("memory=2Gi compute=40"), claim("memory=2Gi")},
			want:   "a 1b-00 2Gi\nb does not fit\nc 1b-00 2Gi\nd 1b-00 2Gi",
		},
		"more memory than a GPU has does not fit": {
			catalog: sharing(), node: h100(t, 8),
			claims: []resourceapi.DeviceClaim{claim("memory=81560Mi")},
			want:   "a does not fit",
		},
		"without consumable capacity a GPU has one owner": {
			catalog: exclusive, node: h100(t, 2),
			claims: []resourceapi.DeviceClaim{claim(""), claim("memory=1Gi"), claim("memory=1Gi")},
			want:   "a 1b-00\nb 43-00\nc does not fit",
		},
		"a GPU with a taint is passed over": {
			catalog: sharing(), node: h100(t, 2), conditions: catalog.Conditions{{Bus: 0x1b}: {Cause: "xid-79"}},
			claims: []resourceapi.DeviceClaim{claim(""), claim("")},
			want:   "a 43-00 81559Mi\nb does not fit",
		},
		"a GPU of at least 40Gi": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{
				claim("cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0"),
				claim("cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"),
			},
			want: "a does not fit\nb 1b-00 81559Mi",
		},
		"a GPU by driver version": {
			catalog: detailed(sharing()), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{
				claim("cel=device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('575.0.0'))"),
				claim("cel=device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.54.3'))"),
			},
			want: "a does not fit\nb 1b-00 81559Mi",
		},
		"the second choice where the first is not there": {
			catalog: sharing(), node: h100(t, 1),
			claims: []resourceapi.DeviceClaim{firstOf(
				claim("cel=device.attributes['gpu.nvidia.com'].architecture == 'Blackwell'"),
				claim("cel=device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"))},
			want: "a 1b-00 81559Mi",
		},
		"four linked GPUs of a DGX-1 are a quad": {
			catalog: sharing(), node: dgx1(t),
			claims: []resourceapi.DeviceClaim{claim(""), claim("count=4 match=nvlinkDomain"), claim("count=4 match=nvlinkDomain"), claim("count=3 match=nvlinkDomain")},
			want:   "a 06-00 32Gi\nb 85-00 32Gi 86-00 32Gi 89-00 32Gi 8a-00 32Gi\nc does not fit\nd 07-00 32Gi 0a-00 32Gi 0b-00 32Gi",
		},
		"five linked GPUs of a DGX-1 do not exist": {
			catalog: sharing(), node: dgx1(t),
			claims: []resourceapi.DeviceClaim{claim("count=5 match=nvlinkDomain"), claim("count=5")},
			want:   "a does not fit\nb 06-00 32Gi 07-00 32Gi 0a-00 32Gi 0b-00 32Gi 85-00 32Gi",
		},
		"two linked GPUs are a bridge": {
			catalog: sharing(), node: bridges(t),
			claims: []resourceapi.DeviceClaim{claim(""), claim("count=2 match=nvlinkDomain"), claim("count=2 match=nvlinkDomain")},
			want:   "a 17-00 32Gi\nb b1-00 32Gi ca-00 32Gi\nc does not fit",
		},
		"all GPUs behind NVSwitch are linked": {
			catalog: sharing(), node: h100(t, 8),
			claims: []resourceapi.DeviceClaim{claim("count=8 match=nvlinkDomain")},
			want:   "a 1b-00 81559Mi 43-00 81559Mi 52-00 81559Mi 61-00 81559Mi 9d-00 81559Mi c3-00 81559Mi d1-00 81559Mi df-00 81559Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := allocateAll(t, schedulable(t, tc.catalog, tc.node, tc.conditions), tc.claims)
			require.Same(t, "allocations", tc.want, got)
		})
	}
}

func TestCliquesYieldLinkedPairsAcrossDomains(t *testing.T) {
	c := sharing()
	c.ListAttributes = true
	features := allocator.Features()
	features.ListTypeAttributes = true
	node := allocator.NewNode(catalog.New(c).Resources(dgx1(t), nil), features, classes(t)...)
	// With three GPUs of each quad taken, the two that are left are linked and
	// in no domain together.
	claims := []resourceapi.DeviceClaim{
		claim("count=3 match=nvlinkDomain"), claim("cel=device.attributes['gpu.nvidia.com'].nvlinkDomain == '85-00'"),
		claim("cel=device.attributes['gpu.nvidia.com'].nvlinkDomain == '85-00'"), claim("cel=device.attributes['gpu.nvidia.com'].nvlinkDomain == '85-00'"),
		claim("count=2 match=nvlinkDomain"), claim("count=2 match=nvlinkCliques"),
	}
	want := "a 06-00 32Gi 07-00 32Gi 0a-00 32Gi\nb 85-00 32Gi\nc 86-00 32Gi\nd 89-00 32Gi\ne does not fit\nf 0b-00 32Gi 8a-00 32Gi"
	require.Same(t, "allocations", want, allocateAll(t, node, claims))
}

// A DGX A100 has two GPUs on a NUMA node. It has four on a socket, whose nodes are all
// near.
func TestListsOfNUMANodesYieldTheGPUsOfASocket(t *testing.T) {
	const numa = "resource.kubernetes.io/numaNode"
	features := allocator.Features()
	for lists, want := range map[bool]string{
		false: "a does not fit\nb 07-00 81052Mi 0f-00 81052Mi\nc 47-00 81052Mi",
		true:  "a 07-00 81052Mi 0f-00 81052Mi 47-00 81052Mi 4e-00 81052Mi\nb 87-00 81052Mi 90-00 81052Mi\nc does not fit",
	} {
		c := sharing()
		c.ListAttributes, features.ListTypeAttributes = lists, lists
		selector := "cel=device.attributes['resource.kubernetes.io'].numaNode == 1"
		if lists {
			selector = "cel=device.attributes['resource.kubernetes.io'].numaNode.includes(1)"
		}
		node := allocator.NewNode(catalog.New(c).Resources(simulated(t, "dgx-a100"), nil), features, classes(t)...)
		claims := []resourceapi.DeviceClaim{claim("count=4 match=" + numa), claim("count=2 match=" + numa), claim(selector)}
		require.Same(t, fmt.Sprintf("allocations with lists %v", lists), want, allocateAll(t, node, claims))
	}
}

// All devices of a GPU have its NUMA nodes in the same form.
func TestListsOfNUMANodesOfEachDevice(t *testing.T) {
	c := sharing()
	c.Offer += ",timeslice,seat,mig"
	c.MIG.AllAttributes, c.MIG.AllowReset, c.ListAttributes = true, true, true
	c.Shares.MPS = true
	for model, want := range map[string][]int64{"dgx-a100": {3, 0, 1, 2}, "gb200": {0}} {
		kinds := map[string]bool{}
		for _, device := range devices(t, c, first(t, 1, model), nil) {
			kinds[*device.Attributes["type"].StringValue] = true
			require.Same(t, fmt.Sprintf("NUMA nodes of %s on a %s", device.Name, model), want, device.Attributes["resource.kubernetes.io/numaNode"].IntValues)
		}
		if len(kinds) != 4 {
			t.Errorf("devices of the kinds %v on a %s, want four kinds", kinds, model)
		}
	}
}
