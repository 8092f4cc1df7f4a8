// SPDX-License-Identifier: Apache-2.0

// Package kueue tests Kueue's charges to a quota for claims on our ResourceSlices. It tests
// the release in kueue.mod (go test -modfile kueue.mod), with the recipe of demo/kueue. Kueue's own functions count.
package kueue

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueueapi "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/dra"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/pins/published"
)

const (
	root   = "../../../.."
	memory = "gpu.nvidia.com/memory"
)

func TestKueueChargesMemoryForOurDevices(t *testing.T) {
	slices, config := published.Slices(t, root), configuration(t)
	features.SetFeatureGateDuringTest(t, features.KueueDRAIntegrationConsumableCapacity, config.FeatureGates["KueueDRAIntegrationConsumableCapacity"])
	mapper := mapperOf(t, config)
	t.Run("each way to claim", func(t *testing.T) { testClaims(t, mapper, slices) })
	t.Run("each model", func(t *testing.T) { testModels(t, mapper, slices) })
	t.Run("the jobs of the recipe", func(t *testing.T) { testJobs(t, mapper, slices["dgx-h100"]) })

	// The device that Kueue's selectors see does not have this field, so the recipe cannot
	// select shareable devices by it. If this fails, it can.
	t.Run("shareable devices", func(t *testing.T) {
		config.Resources.DeviceClassMappings[0].Sources[0].Capacity.DeviceSelector.CEL.Expression = "device.allowMultipleAllocations == true"
		wantCharge(t, mapperOf(t, config), slices["dgx-h100"], template(t, "gpu.nvidia.com", ""), "0 device(s) match")
	})
}

func testClaims(t *testing.T, mapper *dra.ResourceMapper, slices map[string][]resourceapi.ResourceSlice) {
	for name, c := range map[string]struct {
		slices, class, request string
		want                   string // an amount, or a part of the message
	}{
		"a share":                    {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 10Gi}}", "10Gi"},
		"a share with compute":       {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 10Gi, compute: 25}}", "10Gi"},
		"a share below the smallest": {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 1Gi}}", "1686Mi"},
		// The scheduler finds no GPU for it.
		"a share larger than a GPU":            {"dgx-h100", "mps.nvidia.com", "capacity: {requests: {memory: 100Gi}}", "100Gi"},
		"a whole GPU":                          {"dgx-h100", "gpu.nvidia.com", "", "80944Mi"},
		"two GPUs":                             {"dgx-h100", "gpu.nvidia.com", "count: 2", "161888Mi"},
		"nine GPUs of a node with eight":       {"dgx-h100", "gpu.nvidia.com", "count: 9", "8 device(s) match but 9 requested"},
		"a partition of a profile":             {"mig-dgx-h100", "mig.nvidia.com", profile("1g.10gb"), "9920Mi"},
		"a partition of any profile":           {"mig-dgx-h100", "mig.nvidia.com", "", "81088Mi"},
		"a share of a partition":               {"mig-dgx-h100", "mig.nvidia.com", "capacity: {requests: {memory: 4Gi}}\n" + profile("1g.10gb"), "4Gi"},
		"a whole GPU of the largest":           {"dgx-h100 t4", "gpu.nvidia.com", "", "80944Mi"},
		"a whole GPU of a product":             {"dgx-h100 t4", "gpu.nvidia.com", selector("device.attributes['gpu.nvidia.com'].productName == 'Tesla T4'"), "14852Mi"},
		"a class that the recipe does not map": {"timeslice-dgx-h100", "timeslice.nvidia.com", "", "DeviceClass timeslice.nvidia.com is not mapped"},
		"all GPUs of a node":                   {"dgx-h100", "gpu.nvidia.com", "allocationMode: All", "AllocationMode 'All' is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []resourceapi.ResourceSlice
			for name := range strings.FieldsSeq(c.slices) {
				if slices[name] == nil {
					t.Fatalf("no golden slices %s", name)
				}
				// Pools are named after nodes, and all golden slices are of one node.
				for _, s := range slices[name] {
					s.Spec.Pool.Name += "-" + name
					all = append(all, s)
				}
			}
			wantCharge(t, mapper, all, template(t, c.class, c.request), c.want)
		})
	}
}

// testModels has Kueue evaluate the selector of a class on every device that we publish.
func testModels(t *testing.T, mapper *dra.ResourceMapper, slices map[string][]resourceapi.ResourceSlice) {
	tried := 0
	for name, slices := range slices {
		var largest resource.Quantity
		for _, s := range slices {
			for _, d := range s.Spec.Devices {
				size := d.Capacity["memory"].Value
				if kind := d.Attributes["type"].StringValue; kind != nil && *kind == "gpu" && size.Cmp(largest) > 0 {
					largest = size
				}
			}
		}
		if largest.IsZero() {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			wantCharge(t, mapper, slices, template(t, "gpu.nvidia.com", ""), largest.String())
		})
	}
	if tried < 15 {
		t.Errorf("%d lists of slices have GPUs", tried)
	}
}

// testJobs compares the charges with the quota: the second job waits for the first, and
// the urgent one needs memory of the first.
func testJobs(t *testing.T, mapper *dra.ResourceMapper, slices []resourceapi.ResourceSlice) {
	var queue kueueapi.ClusterQueue
	find(t, "demo/kueue/queue.yaml", "ClusterQueue", &queue)
	group := queue.Spec.ResourceGroups[0]
	if got := group.CoveredResources; len(got) != 1 || got[0] != memory {
		t.Fatalf("the queue covers %v, want %s", got, memory)
	}
	quota := group.Flavors[0].Resources[0].NominalQuota.Value()
	var share resourceapi.ResourceClaimTemplate
	find(t, "demo/kueue/training.yaml", "ResourceClaimTemplate", &share)
	one, err := charge(t, mapper, slices, &share)
	must(t, err)
	const training, evaluation, incident = 3, 2, 2 // pods
	if one := one.Value(); training*one > quota || (training+evaluation)*one <= quota || (training+incident)*one <= quota || (evaluation+incident)*one > quota {
		t.Errorf("with %d bytes for a pod and a quota of %d, the recipe does not do what it describes", one, quota)
	}
}

// wantCharge compares the amount, or the message if there is none.
func wantCharge(t *testing.T, mapper *dra.ResourceMapper, slices []resourceapi.ResourceSlice, template *resourceapi.ResourceClaimTemplate, want string) {
	t.Helper()
	got, err := charge(t, mapper, slices, template)
	amount, notAnAmount := resource.ParseQuantity(want)
	switch {
	case notAnAmount != nil && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("charged %s, %v; want an error with %q", got.String(), err, want)
	case notAnAmount == nil && (err != nil || got.Cmp(amount) != 0):
		t.Errorf("charged %s, %v; want %s", got.String(), err, want)
	}
}

// charge returns the quota for a pod with a claim of the template. Kueue's reconciler of
// workloads counts it so.
func charge(t *testing.T, mapper *dra.ResourceMapper, slices []resourceapi.ResourceSlice, template *resourceapi.ResourceClaimTemplate) (resource.Quantity, error) {
	t.Helper()
	// The API server's defaults.
	for _, r := range template.Spec.Spec.Devices.Requests {
		r.Exactly.AllocationMode, r.Exactly.Count = cmp.Or(r.Exactly.AllocationMode, resourceapi.DeviceAllocationModeExactCount), max(r.Exactly.Count, 1)
	}
	objects := cluster{slices: slices, template: template, classes: map[string]*resourceapi.DeviceClass{}}
	for _, document := range published.Documents(t, root, "deployments/static/install.yaml", "DeviceClass") {
		class := &resourceapi.DeviceClass{}
		must(t, yaml.Unmarshal(document, class))
		objects.classes[class.Name] = class
	}
	pod := corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}}
	workload := &kueueapi.Workload{Spec: kueueapi.WorkloadSpec{PodSets: []kueueapi.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod}}}}}
	ctx := logr.NewContext(t.Context(), logr.Discard())
	cache := dra.NewResourceSliceCache(objects)
	counted, problems := dra.GetResourceRequestsForResourceClaimTemplates(ctx, objects, cache, mapper, workload)
	if len(problems) > 0 {
		return resource.Quantity{}, problems.ToAggregate()
	}
	if len(counted) > 0 {
		return resource.Quantity{}, fmt.Errorf("devices are counted, not memory: %v", counted)
	}
	charged, problems := dra.DetermineCapacityResourcesForWorkload(ctx, objects, cache, mapper, workload)
	return charged["main"][memory], problems.ToAggregate()
}

// mapperOf returns Kueue's table of what to charge for a class.
func mapperOf(t *testing.T, config *configapi.Configuration) *dra.ResourceMapper {
	t.Helper()
	mapper := dra.NewResourceMapper()
	must(t, mapper.PopulateFromConfiguration(config.Resources.DeviceClassMappings))
	return mapper
}

// configuration is Kueue's in the values of the recipe. A field that Kueue does not have
// is an error.
func configuration(t *testing.T) *configapi.Configuration {
	t.Helper()
	var values struct {
		ManagerConfig struct {
			ControllerManagerConfigYaml string
		}
	}
	config := &configapi.Configuration{}
	text, err := os.ReadFile(filepath.Join(root, "demo/kueue/kueue-values.yaml"))
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &values))
	must(t, yaml.UnmarshalStrict([]byte(values.ManagerConfig.ControllerManagerConfigYaml), config))
	return config
}

// cluster is the part of an API server that Kueue's accounting reads.
type cluster struct {
	client.Client
	slices   []resourceapi.ResourceSlice
	classes  map[string]*resourceapi.DeviceClass
	template *resourceapi.ResourceClaimTemplate
}

// Get returns the template, or a class.
func (c cluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *resourceapi.ResourceClaimTemplate:
		c.template.DeepCopyInto(o)
		return nil
	case *resourceapi.DeviceClass:
		if class := c.classes[key.Name]; class != nil {
			class.DeepCopyInto(o)
			return nil
		}
	}
	return fmt.Errorf("no %T %s", o, key)
}

// List returns the slices, which are all of our driver.
func (c cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	slices, ok := list.(*resourceapi.ResourceSliceList)
	if !ok {
		return fmt.Errorf("no list %T", list)
	}
	slices.Items = c.slices
	return nil
}

// template returns a template of a claim for a device of the class. It has further lines
// of the request.
func template(t *testing.T, class, request string) *resourceapi.ResourceClaimTemplate {
	t.Helper()
	var exactly resourceapi.ExactDeviceRequest
	must(t, yaml.UnmarshalStrict([]byte("deviceClassName: "+class+"\n"+request), &exactly))
	made := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	made.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &exactly}}
	return made
}

func profile(name string) string {
	return selector("device.attributes['gpu.nvidia.com'].profile == '" + name + "'")
}

func selector(expression string) string {
	return `selectors: [{cel: {expression: "` + expression + `"}}]`
}

// find reads the first object of a kind in a manifest. A field that its type does not have
// is an error.
func find(t *testing.T, file, kind string, object client.Object) {
	t.Helper()
	documents := published.Documents(t, root, file, kind)
	if len(documents) == 0 {
		t.Fatalf("%s has no %s", file, kind)
	}
	if err := yaml.UnmarshalStrict(documents[0], object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
