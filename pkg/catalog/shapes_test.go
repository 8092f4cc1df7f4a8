// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// A step of the allocator's search takes 10 µs on a node of eight whole GPUs. It takes 250
// µs on a node with MIG devices of 16 GPUs.
const (
	// quickSearch is the most steps of a shape that the documents recommend.
	quickSearch = 2_500
	// longSearch is the number of steps after which the tests end a search.
	longSearch = 10_000
)

// requests returns a claim with the requests of several claims. It has the constraints
// of the last one for all of them.
func requests(claims ...resourceapi.DeviceClaim) resourceapi.DeviceClaim {
	all := resourceapi.DeviceClaim{Constraints: claims[len(claims)-1].Constraints}
	for i, c := range claims {
		for j, request := range c.Requests {
			request.Name = fmt.Sprintf("request-%d-%d", i, j)
			all.Requests = append(all.Requests, request)
		}
	}
	return all
}

// each returns a claim with n equal requests.
func each(n int, words string) resourceapi.DeviceClaim {
	return requests(slices.Repeat([]resourceapi.DeviceClaim{claim(words)}, n)...)
}

// firstOf returns a claim with one request for the first of several alternatives that is available.
func firstOf(alternatives ...resourceapi.DeviceClaim) resourceapi.DeviceClaim {
	request := resourceapi.DeviceRequest{Name: "gpu"}
	for i, a := range alternatives {
		e := a.Requests[0].Exactly
		request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprintf("choice-%d", i), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors,
			AllocationMode: e.AllocationMode, Count: e.Count, Capacity: e.Capacity,
		})
	}
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}
}

// profiles returns the published MIG profiles of a node, small ones first.
func profiles(t testing.TB, c catalog.Inputs, hardware gpu.Node) []string {
	t.Helper()
	var all []string
	for _, device := range devices(t, c, hardware, nil) {
		if p := device.Attributes["profile"].StringValue; p != nil && !slices.Contains(all, *p) {
			all = append(all, *p)
		}
	}
	return all
}

// kindsAndMatches returns the words for the devices that a node publishes, the largest
// first. It also returns the words for the constraints that claims have on them.
func kindsAndMatches(t testing.TB, c catalog.Inputs, hardware gpu.Node) (kinds, matches []string) {
	t.Helper()
	for _, profile := range slices.Backward(profiles(t, c, hardware)) {
		kinds = append(kinds, "class=mig profile="+profile)
	}
	if len(kinds) > 0 {
		return kinds, []string{"", "match=parentUUID"}
	}
	return []string{"", "memory=10Gi"}, []string{"", "match=nvlinkDomain", "match=resource.kubernetes.io/numaNode", "match=resource.kubernetes.io/pcieRoot"}
}

// use allocates the given GPUs, and the smallest device of each of the others in parts.
func use(t testing.TB, node *allocator.Node, c catalog.Inputs, hardware gpu.Node, smallest string, whole, parts func(i int) bool) {
	t.Helper()
	for i, g := range hardware.GPUs {
		words := fmt.Sprintf("cel=device.attributes['gpu.nvidia.com'].uuid == '%s'", g.UUID)
		hasMIG := len(g.MIG.Profiles) > 0
		switch {
		case whole(i) && hasMIG && c.Partitions != nil:
			words = fmt.Sprintf("class=mig count=all cel=device.attributes['gpu.nvidia.com'].parentUUID == '%s'", g.UUID)
		case whole(i):
		case !parts(i):
			continue
		case strings.HasPrefix(smallest, "class=mig") && !hasMIG:
			words = "memory=10Gi " + words
		case strings.HasPrefix(smallest, "class=mig"):
			profile := strings.TrimPrefix(smallest, "class=mig profile=")
			words = fmt.Sprintf("class=mig cel=device.attributes['gpu.nvidia.com'].profile == '%s' && device.attributes['gpu.nvidia.com'].parentUUID == '%s'", profile, g.UUID)
		default:
			words = smallest + " " + words
		}
		_, err := node.Allocate(t.Context(), g.UUID, claim(words))
		must(t, err)
	}
}

// search returns the number of steps of the search for a claim, at most longSearch.
func search(t testing.TB, node *allocator.Node, c resourceapi.DeviceClaim) int {
	t.Helper()
	steps := allocator.NewSteps(t.Context(), longSearch)
	if _, err := node.Allocate(steps, "search", c); err != nil && !errors.Is(err, allocator.ErrNoFit) && !errors.Is(err, allocator.ErrTooManySteps) {
		t.Fatal(err)
	}
	node.Free("search")
	return min(steps.Taken, longSearch)
}

// drawQuick returns a claim for up to eight devices in a shape that docs/user/shapes.md
// recommends, and its description: all GPUs, one request, up to three requests with the
// largest devices first, or alternatives in one request.
func drawQuick(t *rapid.T, kinds, matches []string) (string, resourceapi.DeviceClaim) {
	if rapid.IntRange(0, 19).Draw(t, "all") == 0 {
		return "all GPUs", claim("count=all")
	}
	match := rapid.SampledFrom(matches).Draw(t, "match")
	var words []string
	var claims []resourceapi.DeviceClaim
	for left, first := 8, 0; left > 0 && first < len(kinds) && len(words) < 3; {
		kind := rapid.IntRange(first, len(kinds)-1).Draw(t, "kind")
		count := rapid.IntRange(1, left).Draw(t, "count")
		words = append(words, fmt.Sprintf("count=%d %s %s", count, kinds[kind], match))
		claims = append(claims, claim(words[len(words)-1]))
		if left, first = left-count, kind+1; rapid.Bool().Draw(t, "last") {
			break
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "alternatives") == 0 {
		return strings.Join(words, ", or "), firstOf(claims...)
	}
	return strings.Join(words, ", then "), requests(claims...)
}

// TestQuickShapesEndOnEachModel checks that the scheduler answers claims of the
// recommended shapes within a bounded number of steps. The claims may fit or not.
// "go test ./pkg/catalog -run QuickShapes -rapid.checks=10000" tries more of them.
func TestQuickShapesEndOnEachModel(t *testing.T) {
	t.Parallel()
	models := nvmlsim.ModelNames()
	for name := range sizes() {
		models = append(models, name)
	}
	shippedClasses := classes(t)
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			hardware := simulated(t, model)
			catalogs := []catalog.Inputs{sharing()}
			if all := hardware.GPUs[0].MIG.Profiles; len(all) > 0 {
				layout := fmt.Sprintf("all %s*%d", all[0].Profile, all[0].MaxInstances)
				catalogs = append(catalogs, cutting(catalog.MIGProfiles{}), layered(t, sharing(), hardware, layout))
			}
			rapid.Check(t, func(rt *rapid.T) {
				c := catalogs[rapid.IntRange(0, len(catalogs)-1).Draw(rt, "catalog")]
				kinds, matches := kindsAndMatches(t, c, hardware)
				node := allocator.NewNode(catalog.New(c).Resources(hardware, nil), allocator.Features(), shippedClasses...)
				drawn := func(name string) func(int) bool {
					set := rapid.SliceOfN(rapid.Bool(), len(hardware.GPUs), len(hardware.GPUs)).Draw(rt, name)
					return func(i int) bool { return set[i] }
				}
				use(t, node, c, hardware, kinds[len(kinds)-1], drawn("in use"), drawn("in use in part"))
				words, shape := drawQuick(rt, kinds, matches)
				if steps := search(t, node, shape); steps > quickSearch {
					rt.Fatalf("%s: %d steps", words, steps)
				}
			})
		})
	}
}

// TestExtendedResourcesEnd checks that the scheduler answers pods with any number of an
// extended resource. Profiles with media engines are left out: each has more placements on
// a GPU than devices.
func TestExtendedResourcesEnd(t *testing.T) {
	t.Parallel()
	hardware := simulated(t, "dgx-h100")
	c := slicing(cutting(catalog.MIGProfiles{All: true}))
	resources := 0
	for free := range len(hardware.GPUs) + 1 {
		node := schedulable(t, c, hardware, nil)
		use(t, node, c, hardware, "", func(i int) bool { return i >= free }, func(int) bool { return false })
		for _, class := range classes(t) {
			if class.Spec.ExtendedResourceName == nil || strings.HasSuffix(class.Name, ".me") {
				continue
			}
			resources++
			for _, n := range []int{1, 4, 8} {
				request := claim(fmt.Sprintf("count=%d", n))
				request.Requests[0].Exactly.DeviceClassName = class.Name
				if steps := search(t, node, request); steps > quickSearch {
					t.Errorf("%d free GPUs: %d of %s: %d steps", free, n, *class.Spec.ExtendedResourceName, steps)
				}
			}
		}
	}
	if resources < 50 {
		t.Errorf("only %d resources were tried", resources)
	}
}

// TestTheTableOfShapes compares the table in docs/user/shapes.md with the largest number of
// the allocator's steps. More and more GPUs of the nodes are in use.
func TestTheTableOfShapes(t *testing.T) {
	t.Parallel()
	type shape struct {
		words string
		claim func(n int) resourceapi.DeviceClaim
	}
	words := func(format string) func(n int) resourceapi.DeviceClaim {
		return func(n int) resourceapi.DeviceClaim { return claim(fmt.Sprintf(format, n)) }
	}
	const small, large = "class=mig profile=1g.10gb", "count=2 class=mig profile=7g.80gb"
	var table strings.Builder
	for _, group := range []struct {
		node    string
		catalog catalog.Inputs
		shapes  []shape
	}{
		{"whole GPUs", sharing(), []shape{
			{"all GPUs: `allocationMode: All`", func(int) resourceapi.DeviceClaim { return claim("count=all") }},
			{"one request, `count: n`", words("count=%d")},
			{"the same with `matchAttribute: gpu.nvidia.com/nvlinkDomain`", words("count=%d match=nvlinkDomain")},
			{"*n requests, or claims of a pod, for a GPU each*", func(n int) resourceapi.DeviceClaim { return each(n, "") }},
			{"*n − 1 requests for a share each, then one that does not fit*", func(n int) resourceapi.DeviceClaim {
				return requests(each(n-1, "memory=2Gi"), claim("memory=100Gi"))
			}},
			{"the one that does not fit, then n − 1 requests for a share each", func(n int) resourceapi.DeviceClaim {
				return requests(claim("memory=100Gi"), each(n-1, "memory=2Gi"))
			}},
		}},
		{"MIG devices", cutting(catalog.MIGProfiles{}), []shape{
			{"one request, `count: n`, with `matchAttribute: gpu.nvidia.com/parentUUID`", words("count=%d " + small + " match=parentUUID")},
			{"`count: 2` large ones, then `count: n − 2` small ones", func(n int) resourceapi.DeviceClaim {
				return requests(claim(large), claim(fmt.Sprintf("count=%d %s", n-2, small)))
			}},
			{"*`count: n − 2` small ones, then `count: 2` large ones*", func(n int) resourceapi.DeviceClaim {
				return requests(claim(fmt.Sprintf("count=%d %s", n-2, small)), claim(large))
			}},
			{"*n requests for a small device each, with `matchAttribute`*", func(n int) resourceapi.DeviceClaim {
				return each(n, small+" match=parentUUID")
			}},
			{"*one request, `count: n`, with `distinctAttribute: gpu.nvidia.com/parentUUID`*", words("count=%d " + small + " distinct=parentUUID")},
		}},
	} {
		hardware := simulated(t, "dgx-h100")
		kinds, _ := kindsAndMatches(t, group.catalog, hardware)
		steps := map[string]int{}
		counts := []int{4, 6, 8}
		for free := range len(hardware.GPUs) + 1 {
			node := schedulable(t, group.catalog, hardware, nil)
			use(t, node, group.catalog, hardware, kinds[len(kinds)-1], func(i int) bool { return i >= free }, func(int) bool { return false })
			for _, s := range group.shapes {
				for _, n := range counts {
					key := fmt.Sprint(s.words, n)
					if steps[key] < longSearch {
						steps[key] = max(steps[key], search(t, node, s.claim(n)))
					}
				}
			}
		}
		fmt.Fprintf(&table, "| %s, n = | 4 | 6 | 8 |\n|---|---|---|---|\n", group.node)
		for _, s := range group.shapes {
			fmt.Fprintf(&table, "| %s |", s.words)
			for _, n := range counts {
				text := fmt.Sprint(steps[fmt.Sprint(s.words, n)])
				if text == fmt.Sprint(longSearch) {
					text = "**> 10,000**"
				}
				fmt.Fprintf(&table, " %s |", text)
			}
			table.WriteString("\n")
		}
		table.WriteString("\n")
	}
	const file, begin, end = "../../docs/user/shapes.md", "<!-- table of shapes -->\n\n", "<!-- end of the table -->"
	text, err := os.ReadFile(file)
	must(t, err)
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, _ := strings.Cut(rest, end)
	want := before + begin + table.String() + end + after
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must(t, os.WriteFile(file, []byte(want), 0o644))
	} else if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is out of date; run make generate (-want +got):\n%s", file, diff)
	}
}

// TestClaimsOfTheDocumentAndTheDemosEnd searches for their devices on nodes with more and
// more GPUs in use.
func TestClaimsOfTheDocumentAndTheDemosEnd(t *testing.T) {
	t.Parallel()
	claims := map[string]resourceapi.DeviceClaim{}
	text, err := os.ReadFile("../../docs/user/shapes.md")
	must(t, err)
	for i, fence := range regexp.MustCompile("(?s)```yaml\n(devices:.*?)```").FindAllStringSubmatch(string(text), -1) {
		var spec resourceapi.ResourceClaimSpec
		must(t, yaml.UnmarshalStrict([]byte(fence[1]), &spec))
		claims[fmt.Sprintf("docs/user/shapes.md, claim %d", i)] = spec.Devices
	}
	files, err := filepath.Glob("../../demo/*/*.yaml")
	must(t, err)
	known := slices.Clone(classes(t))
	for _, file := range files {
		own, err := allocator.ReadClasses(file)
		must(t, err)
		known = append(known, own...)
		text, err := os.ReadFile(file)
		must(t, err)
		for i, document := range strings.Split(string(text), "\n---\n") {
			var object struct {
				Kind string
				Spec struct {
					resourceapi.ResourceClaimSpec
					Spec resourceapi.ResourceClaimSpec
				}
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			switch object.Kind {
			case "ResourceClaim":
				claims[fmt.Sprint(file, " ", i)] = object.Spec.Devices
			case "ResourceClaimTemplate":
				claims[fmt.Sprint(file, " ", i)] = object.Spec.Spec.Devices
			}
		}
	}
	if len(claims) < 20 {
		t.Errorf("only %d claims were found", len(claims))
	}
	for _, model := range []string{"dgx-h100", "dgx1-v100"} {
		hardware := simulated(t, model)
		c := slicing(cutting(catalog.MIGProfiles{}))
		for free := range len(hardware.GPUs) + 1 {
			node := allocator.NewNode(catalog.New(c).Resources(hardware, nil), allocator.Features(), known...)
			use(t, node, c, hardware, "", func(i int) bool { return i >= free }, func(int) bool { return false })
			for name, devices := range claims {
				if unknown := func(r resourceapi.DeviceRequest) bool { return !knows(known, r) }; slices.ContainsFunc(devices.Requests, unknown) {
					continue // for another driver too
				}
				if steps := search(t, node, defaulted(devices)); steps > quickSearch {
					t.Errorf("%s with %d free GPUs: %s: %d steps", model, free, name, steps)
				}
			}
		}
	}
}

// knows reports whether the classes of a request are known.
func knows(known []*resourceapi.DeviceClass, r resourceapi.DeviceRequest) bool {
	var names []string
	if r.Exactly != nil {
		names = append(names, r.Exactly.DeviceClassName)
	}
	for _, sub := range r.FirstAvailable {
		names = append(names, sub.DeviceClassName)
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(known, func(class *resourceapi.DeviceClass) bool { return class.Name == name })
	})
}

// defaulted returns the claim with the API's defaults.
func defaulted(c resourceapi.DeviceClaim) resourceapi.DeviceClaim {
	all := *c.DeepCopy()
	set := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	for _, request := range all.Requests {
		if request.Exactly != nil {
			set(&request.Exactly.AllocationMode, &request.Exactly.Count)
		}
		for i := range request.FirstAvailable {
			set(&request.FirstAvailable[i].AllocationMode, &request.FirstAvailable[i].Count)
		}
	}
	return all
}

// TestAConstraintOnAllGPUsStopsTheSearchOnAllNodes keeps docs/user/shapes.md correct about
// claims that no node answers.
func TestAConstraintOnAllGPUsStopsTheSearchOnAllNodes(t *testing.T) {
	t.Parallel()
	node := schedulable(t, sharing(), simulated(t, "dgx1-v100"), nil)
	_, err := node.Allocate(t.Context(), "a", claim("count=all match=nvlinkDomain"))
	if err == nil || errors.Is(err, allocator.ErrNoFit) {
		t.Errorf("error %v, want one that ends the scheduling of the pod", err)
	}
}

var must = require.NoError
