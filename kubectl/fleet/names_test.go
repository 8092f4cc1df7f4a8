// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTheNamesThatAnExpressionReads(t *testing.T) {
	for expression, want := range map[string]string{
		"device.attributes['a.b'].x == 1":                                                 "attribute a.b/x",
		`device.attributes["a.b"].?x.orValue(1) == 1`:                                     "attribute a.b/x",
		"has(device.attributes['a.b'].x)":                                                 "attribute a.b/x",
		"device.attributes['a.b']['x'] == 1":                                              "attribute a.b/x",
		"device.attributes[?'a.b'].x == 1":                                                "attribute a.b/x",
		"device.capacity['a.b'].x.compareTo(quantity('1')) >= 0":                          "capacity a.b/x",
		"device.attributes['a.b'].x == 1 && device.attributes['a.b'].x != 2":              "attribute a.b/x",
		"'device.attributes[\"a.b\"].y' == device.attributes['a.b'].x":                    "attribute a.b/x",
		"[1].exists(i, device.attributes['a.b'].x == i) || device.capacity['c.d'].y == 1": "attribute a.b/x, capacity c.d/y",
		"device.driver == 'a.b'":                                                          "",
		"other.attributes['a.b'].x == 1":                                                  "",
		"device.attributes['a.b'.x == 1":                                                  "",
	} {
		var got []string
		for _, name := range fleet.NamesIn(expression) {
			got = append(got, name.String())
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// without removes attributes from the devices of some nodes.
func without(w *fleettest.World, nodes string, names ...resourceapi.QualifiedName) {
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			for _, name := range names {
				if strings.Contains(nodes, slice.Spec.Pool.Name) {
					delete(slice.Spec.Devices[i].Attributes, name)
				}
			}
		}
	}
}

func TestSelectorsThatReadNamesWhichDevicesLack(t *testing.T) {
	const page = "https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/attributes.md#attributes"
	const unpublished = "no node publishes it; attributes and offer of the chart say what nodes publish: " + page
	for name, tc := range map[string]struct {
		claim  string
		change func(*fleettest.World)
		want   string // "" for no problem
	}{
		"a name that all devices have":  {"cel=device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('1.0.0'))", nil, ""},
		"a guarded name":                {"cel=device.attributes['gpu.nvidia.com'].type == 'mig' && device.attributes['gpu.nvidia.com'].profile == 'x'", nil, ""},
		"a name that no node has":       {"cel=device.attributes['gpu.nvidia.com'].?brand.orValue('') == 'Tesla'", func(w *fleettest.World) { without(w, "ab", "brand") }, "it reads the attribute gpu.nvidia.com/brand, which no device has; " + unpublished},
		"a name that one node lacks":    {"cel=device.attributes['gpu.nvidia.com'].brand == 'Tesla'", func(w *fleettest.World) { without(w, "b", "brand") }, "fails: it reads the attribute gpu.nvidia.com/brand: 4 devices cannot answer, such as gpu-18-00 of pool b; only 4 devices have it: read device.attributes['gpu.nvidia.com'].?brand.orValue(…)"},
		"a name of the level all":       {"cel=device.attributes['gpu.nvidia.com'].eccEnabled", nil, "fails: it reads the attribute gpu.nvidia.com/eccEnabled: 8 devices cannot answer, such as gpu-18-00 of pool a; " + unpublished},
		"a capacity as an attribute":    {"cel=device.attributes['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0", nil, "fails: it reads the attribute gpu.nvidia.com/memory: 8 devices cannot answer, such as gpu-18-00 of pool a; memory is a capacity: write device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0"},
		"an attribute as a capacity":    {"cel=device.capacity['gpu.nvidia.com'].multiprocessors.compareTo(quantity('40')) >= 0", nil, "fails: it reads the capacity gpu.nvidia.com/multiprocessors: 8 devices cannot answer, such as gpu-18-00 of pool a; multiprocessors is an attribute: write device.attributes['gpu.nvidia.com'].multiprocessors"},
		"another domain":                {"cel=device.attributes['gpu.nvidia.com'].numaNode == 0", nil, "fails: it reads the attribute gpu.nvidia.com/numaNode: 8 devices cannot answer, such as gpu-18-00 of pool a; write device.attributes['resource.kubernetes.io'].numaNode"},
		"other letters":                 {"cel=device.attributes['gpu.nvidia.com'].UUID == 'x'", nil, "fails: it reads the attribute gpu.nvidia.com/UUID: 8 devices cannot answer, such as gpu-18-00 of pool a; write device.attributes['gpu.nvidia.com'].uuid"},
		"a slip":                        {"cel=device.attributes['gpu.nvidia.com'].drivrVersion == 'x'", nil, "fails: it reads the attribute gpu.nvidia.com/drivrVersion: 8 devices cannot answer, such as gpu-18-00 of pool a; did you mean device.attributes['gpu.nvidia.com'].driverVersion?"},
		"a name that is none":           {"cel=device.attributes['gpu.nvidia.com'].colour == 'x'", nil, "fails: it reads the attribute gpu.nvidia.com/colour: 8 devices cannot answer, such as gpu-18-00 of pool a; write a name that devices have: " + page},
		"another fault":                 {"cel=device.attributes['gpu.nvidia.com'].uuid > 5", nil, "fails: it fails with no such overload: 8 devices cannot answer, such as gpu-18-00 of pool a; correct the selector device.attributes['gpu.nvidia.com'].uuid > 5"},
		"a constraint that is met":      {"match=architecture", nil, ""},
		"a constraint without a device": {"match=nvlinkDomian", nil, "its constraint needs the attribute gpu.nvidia.com/nvlinkDomian, which no device has; did you mean device.attributes['gpu.nvidia.com'].nvlinkDomain?"},
		"a class of other devices":      {"class=mig.nvidia.com cel=device.attributes['gpu.nvidia.com'].colour == 'x'", nil, "it reads the attribute gpu.nvidia.com/colour, which no device has; write a name that devices have: " + page},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleettest.New(t, "a=t4 share", "b=t4 share")
			if tc.change != nil {
				tc.change(w)
			}
			var got []string
			f := w.Fleet()
			for _, p := range f.NewSearch(0).Names().Claim(t.Context(), w.Classes, fleettest.Claim("c", tc.claim).Spec.Devices) {
				got = append(got, map[bool]string{true: "fails: "}[p.Fails]+p.Found+"; "+p.Remedy)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The scheduler decides whether a selector fails, and not a list of names.
func TestASelectorThatFailsEndsTheSchedulingOfTheClaim(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	without(w, "a", "brand")
	claim := fleettest.Claim("c", "cel=device.attributes['gpu.nvidia.com'].brand.startsWith('')")
	if _, err := w.Fleet().Fit(t.Context(), "a", claim); err == nil || !strings.Contains(err.Error(), "no such key: brand") {
		t.Errorf("the allocator: %v", err)
	}
	problems, err := w.Fleet().NewSearch(0).ClaimNames(t.Context(), []*resourceapi.ResourceClaim{claim})
	require.NoError(t, err)
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "claim c: it reads the attribute gpu.nvidia.com/brand: 4 devices cannot answer") {
		t.Errorf("problems %q", problems)
	}
}

func TestSelectorsOfOtherPartiesAreBounded(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	names := w.Fleet().NewSearch(time.Hour).Names()
	for i := range 2100 {
		expression := fmt.Sprintf("device.driver == 'd%d'", i)
		names.Selectors(t.Context(), []string{expression})
		if names.Full() != (i >= 1999) {
			t.Fatalf("after %d selectors: full %t", i+1, names.Full())
		}
	}
}

func TestAConstraintMayNameAnyDriver(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Slices = append(w.Slices, &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: "dra.net", Devices: []resourceapi.Device{{
		Name: "nic", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"rdma": {BoolValue: ptr.To(true)}},
	}}}})
	names := w.Fleet().NewSearch(0).Names()
	if got := slices.Concat(names.Constraint("dra.net/rdma"), names.Constraint("gpu.nvidia.com/uuid"), names.Constraint("resource.kubernetes.io/pcieRoot")); got != nil {
		t.Errorf("problems %v", got)
	}
	if got := names.Constraint("gpu.nvidia.com/rdma"); len(got) != 1 {
		t.Errorf("problems %v", got)
	}
}
