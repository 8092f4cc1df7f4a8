// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func selectorOf(expression string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// Each selector is evaluated once on each device, in a verdict and in a check; on devices with
// the same values for it only once. Devices of another class cost one evaluation.
func TestTheWorkOfASearch(t *testing.T) {
	const devices = 128
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "other.example.com", NodeName: ptr.To("a"), Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1},
	}}
	for i := range devices {
		number := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"number": {IntValue: ptr.To(int64(i))}}
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("d-%d", i), Attributes: number})
	}
	objects := Objects{
		Slices: []*resourceapi.ResourceSlice{slice},
		Classes: []*resourceapi.DeviceClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: resourceapi.DeviceClassSpec{Selectors: selectorOf(`device.driver == "gpu.nvidia.com"`)}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: resourceapi.DeviceClassSpec{Selectors: selectorOf(`device.driver == "other.example.com"`)}},
		},
	}
	claim := func(class, selector string) *resourceapi.ResourceClaim {
		exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1, Selectors: selectorOf(selector)}
		return &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: exactly}}}}}
	}
	for name, tc := range map[string]struct {
		class, selector   string
		evaluations, work int
	}{
		"devices of another class": {"ours", `device.driver == "none"`, 1, 20},
		// A device whose selector does not match costs runs of the allocator with itself alone.
		"a selector that no device differs in": {"other", `device.driver == "none"`, 2, 4*devices + 20},
		"a selector that all devices differ in": {
			"other", `device.attributes["other.example.com"].number == -1`, 1 + devices, devices + 4*devices + 20,
		},
		"a selector that reads names which are not constant": {
			"other", `device.attributes["other.example.com"].exists(name, name == "none")`, 1 + devices, devices + 4*devices + 20,
		},
	} {
		s := New(objects, Options{Features: FeaturesOf(objects)}).NewSearch(0)
		for range 3 {
			if _, err := s.Verdicts(t.Context(), nil, claim(tc.class, tc.selector)); err != nil {
				t.Fatal(err)
			}
		}
		before := mostWork - s.left
		if tc.class == "ours" && before > 60 {
			t.Errorf("%s: three verdicts take %d steps", name, before)
		}
		if _, err := s.Check(t.Context(), "a", claim(tc.class, tc.selector)); err != nil {
			t.Fatal(err)
		}
		if n := len(s.matches); n != tc.evaluations {
			t.Errorf("%s: %d evaluations, want %d", name, n, tc.evaluations)
		}
		if work := mostWork - s.left; work > tc.work+60 {
			t.Errorf("%s: %d steps, want at most %d", name, work, tc.work+60)
		}
	}
	// The search ends when the work is spent, also if time is left.
	s := New(objects, Options{Features: FeaturesOf(objects)}).NewSearch(0)
	s.left = 10
	checks, err := s.Check(t.Context(), "a", claim("other", `device.driver == "none"`))
	if err != nil || checks[0].NotExamined < devices-10 {
		t.Errorf("got %d devices that are not examined, %v", checks[0].NotExamined, err)
	}
}

// A driver may publish devices of many shapes, on each of which the selectors are evaluated.
func TestTheNamesInSelectorsAreWorkOfTheSearch(t *testing.T) {
	const shapes = 1000
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "other.example.com", NodeName: ptr.To("a"), Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1},
	}}
	for i := range shapes {
		name := fmt.Sprintf("d-%d", i)
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			resourceapi.QualifiedName(name): {BoolValue: ptr.To(true)},
		}})
	}
	objects := Objects{Slices: []*resourceapi.ResourceSlice{slice}}
	// The result of a selector that reads more than names is not shared by devices.
	exactly := &resourceapi.ExactDeviceRequest{Selectors: selectorOf("device.attributes['other.example.com'].colour == 'red' && [device].size() == 1")}
	claims := []*resourceapi.ResourceClaim{{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: exactly}}}}}}
	for name, tc := range map[string]struct {
		change func(*Search)
		work   int
		want   error
	}{
		"a search with enough time and work":  {func(*Search) {}, shapes, nil},
		"a search with little work left":      {func(s *Search) { s.left = 10 }, 10, ErrNotExamined},
		"a search without time":               {func(s *Search) { s.deadline = time.Now() }, 0, ErrNotExamined},
		"a search that ended with other work": {func(s *Search) { s.left = 0 }, 0, ErrNotExamined},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(objects, Options{Driver: "other.example.com", Features: FeaturesOf(objects)}).NewSearch(0)
			tc.change(s)
			before := s.left
			problems, err := s.ClaimNames(t.Context(), claims)
			if !errors.Is(err, tc.want) || (len(problems) == 1) != (tc.want == nil) {
				t.Errorf("problems %q, %v; want %v", problems, err, tc.want)
			}
			if work := before - s.left; work != tc.work {
				t.Errorf("%d evaluations, want %d", work, tc.work)
			}
		})
	}
	// One evaluation takes longer than the limit.
	slice.Spec.Devices = slice.Spec.Devices[:1]
	const numbers = "[1,2,3,4,5,6,7,8,9]"
	exactly.Selectors = selectorOf(fmt.Sprintf("%[1]s.all(a,%[1]s.all(b,%[1]s.all(c,%[1]s.all(d,%[1]s.all(e,%[1]s.all(f,a*b*c*d*e*f>0))))))", numbers))
	s := New(objects, Options{Driver: "other.example.com", Features: FeaturesOf(objects)}).NewSearch(5 * time.Millisecond)
	if problems, err := s.ClaimNames(t.Context(), claims); !errors.Is(err, ErrNotExamined) || problems != nil {
		t.Errorf("problems %q, %v; want that the limit ends the evaluation", problems, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := New(objects, Options{Features: FeaturesOf(objects)}).NewSearch(0).ClaimNames(ended, claims); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

// interrupted takes hundreds of steps on a device, and selects every device. The end of a
// context interrupts it.
const interrupted = "[1,2,3,4,5,6,7,8,9].all(a,[1,2,3,4,5,6,7,8,9].all(b,[1,2,3,4,5,6,7,8,9].all(c,a*b*c>0)))"

func TestASelectorThatIsInterruptedDoesNotFail(t *testing.T) {
	device := resourceapi.Device{Name: "d"}
	objects := Objects{Slices: []*resourceapi.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "other.example.com", NodeName: ptr.To("a"), Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1}, Devices: []resourceapi.Device{device},
	}}}}
	f := New(objects, Options{Driver: "other.example.com", Features: FeaturesOf(objects)})
	s, names := f.NewSearch(0), f.NewSearch(0).Names()
	d := f.device(DeviceID{"other.example.com", "a", "d"}, &device)
	ended, end := context.WithCancel(t.Context())
	end()
	selector := selectorOf(interrupted)
	if got := s.selects(ended, selector, d, d.ID.Driver); got != (match{notExamined: true}) {
		t.Errorf("got %+v, want not examined", got)
	}
	if got := names.Selectors(ended, []string{interrupted}); got != nil {
		t.Errorf("got problems %+v of an interrupted selector", got)
	}
	// Nothing is remembered of it.
	if got := s.selects(t.Context(), selector, d, d.ID.Driver); got != (match{selected: true}) {
		t.Errorf("got %+v, want a device that is selected", got)
	}
	// A selector that fails does so also if the search goes on.
	if got := s.selects(t.Context(), selectorOf("device.attributes['a.b'].x == 1"), d, d.ID.Driver); got.selected || !got.failed || got.err == nil {
		t.Errorf("got %+v, want a selector that fails", got)
	}
}

// A miss takes many runs of the allocator. Nodes on which the allocator does the same share them,
// and nodes that differ in a part that it reads do not.
func TestNodesThatAreAlikeAreSearchedOnce(t *testing.T) {
	const driver, nodes = "gpu.nvidia.com", 100
	request := &resourceapi.ExactDeviceRequest{DeviceClassName: "ours", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 3}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: request}}}}}
	attribute := func(slice *resourceapi.ResourceSlice, name resourceapi.QualifiedName, value string) {
		slice.Spec.Devices[0].Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
	for name, tc := range map[string]struct {
		change   func(slice *resourceapi.ResourceSlice)
		selector string
		// searched is the number of nodes that are searched, and described the one of nodes that
		// are described for each claim.
		searched, described int
	}{
		"a name that no selector reads": {func(s *resourceapi.ResourceSlice) { attribute(s, "uuid", s.Name) }, "true", 1, 1},
		"a generation, which counts the changes of a pool": {func(s *resourceapi.ResourceSlice) {
			if s.Name == "s-7" {
				s.Spec.Pool.Generation = 7
			}
		}, "true", 1, 1},
		"a name that a selector reads": {func(s *resourceapi.ResourceSlice) { attribute(s, "uuid", s.Name) },
			"device.attributes['gpu.nvidia.com'].uuid == 's-7'", 2, nodes},
		"a name that a selector may read": {func(s *resourceapi.ResourceSlice) { attribute(s, "uuid", s.Name) },
			"device.attributes['gpu.nvidia.com'].all(name, device.attributes['gpu.nvidia.com'][name] != 's-7')", 2, nodes},
		"a taint": {func(s *resourceapi.ResourceSlice) {
			if s.Name == "s-7" {
				s.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "a", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			}
		}, "true", 2, 2},
		// A selector of nodes may match one of two nodes with the same slices.
		"a slice of several nodes": {func(s *resourceapi.ResourceSlice) {
			if s.Name == "s-7" {
				s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true)
			}
		}, "true", 0, nodes - 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects := Objects{Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: resourceapi.DeviceClassSpec{Selectors: selectorOf(`device.driver == "gpu.nvidia.com"`)}}}}
			request.Selectors = selectorOf(tc.selector)
			for i := range nodes {
				node := fmt.Sprintf("n-%d", i)
				slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
					Devices: []resourceapi.Device{{Name: "d", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}},
				}}
				tc.change(slice)
				objects.Slices = append(objects.Slices, slice)
			}
			s := New(objects, Options{Driver: driver, Features: FeaturesOf(objects)}).NewSearch(0)
			all, err := s.Verdicts(t.Context(), nil, claim)
			require.NoError(t, err)
			if len(s.missesOf) != tc.searched {
				t.Errorf("%d nodes are searched, want %d", len(s.missesOf), tc.searched)
			}
			names := s.fleet.NodeNames()
			distinct := func(likenessOf func(node string) (likeness, bool)) int { return len(firsts(alike(names, likenessOf))) }
			if n, want := distinct(func(node string) (likeness, bool) { return s.describe(t.Context(), node, claim) }), cmp.Or(tc.searched, len(names)); n != want {
				t.Errorf("%d nodes are distinct, want %d", n, want)
			}
			if n := distinct(func(node string) (likeness, bool) { return s.outline(node, claim) }); n != tc.described {
				t.Errorf("%d nodes have an outline of their own, want %d", n, tc.described)
			}
			for _, v := range all {
				alone := s.nearest(t.Context(), s.fleet.newAttempt(v.Node, claim))
				if fmt.Sprint(v.Missing, v.distance) != fmt.Sprint(alone.Missing, alone.distance) {
					t.Errorf("node %s: got %v, want %v as for the node alone", v.Node, v.Missing, alone.Missing)
				}
			}
		})
	}
}

// An explanation tries changed claims in one search.
func TestAChangedClaimIsSearchedAgain(t *testing.T) {
	objects := Objects{
		Slices: []*resourceapi.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{
			Driver: "other.example.com", NodeName: ptr.To("a"), Pool: resourceapi.ResourcePool{Name: "a", ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "d"}},
		}}},
		Classes: []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}},
	}
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: "other", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 2}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: exactly}}}}}
	s := New(objects, Options{Features: FeaturesOf(objects)}).NewSearch(0)
	for _, want := range []bool{false, true} {
		all, err := s.Verdicts(t.Context(), nil, claim)
		if err != nil || len(all) != 1 || all[0].Fits() != want {
			t.Errorf("%d devices: got %+v, %v", exactly.Count, all, err)
		}
		exactly.Count = 1
	}
}

func TestWhatAnExpressionReads(t *testing.T) {
	for expression, onlyNames := range map[string]bool{
		"device.driver == 'a.b'":                                    true,
		"device.attributes['a.b'].x == 1 && device.driver == 'a.b'": true,
		"device.capacity['a.b'].x.isGreaterThan(quantity('1'))":     true,
		"size(device.capacity) > 0":                                 true,
		"device.allowMultipleAllocations":                           true,
		"has(device.attributes['a.b'].x)":                           true,
		"device.attributes['a.b'].?x.orValue(1) == 1":               true,
		"device.attributes['a.b'].x.exists(v, v == 1)":              true,
		"[1].all(i, device.attributes['a.b'].x == i)":               true,
		"'x' in device.attributes['a.b']":                           false,
		"'a.b' in device.attributes":                                false,
		"size(device.attributes['a.b']) > 1":                        false,
		"device.attributes['a.b']['x' + 'y'] == 1":                  false,
		"device.attributes[device.driver].x == 1":                   false,
		"cel.bind(all, device.attributes['a.b'], all.x == 1)":       false,
		"device.attributes['a.b'].exists(k, k == 'x')":              false,
		"[device].exists(d, d.attributes['a.b'].x == 1)":            false,
		"device.attributes['a.b'].x == 1 || device == device":       false,
		"device.attributes['a.b'.x == 1":                            false,
	} {
		if got := readsOf(expression); got.onlyNames != onlyNames {
			t.Errorf("%s: got %+v, want onlyNames to be %t", expression, got, onlyNames)
		}
	}
}
