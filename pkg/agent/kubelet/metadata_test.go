// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"maps"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	metadata "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestMetadataDescribesTheShareOfTheClaim(t *testing.T) {
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	number := func(n int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &n} }
	published := func() map[string]resourceapi.DeviceAttribute {
		return map[string]resourceapi.DeviceAttribute{"productName": text("NVIDIA H100 80GB HBM3"), "sharing": text("mps"), "enforcement": text("cooperative")}
	}
	uuid := text("GPU-11111111-2222-3333-4444-555555555555")
	for name, tc := range map[string]struct {
		terms share.Terms
		want  map[string]resourceapi.DeviceAttribute
	}{
		"a whole GPU, which could be shared": {share.Terms{}, map[string]resourceapi.DeviceAttribute{
			"productName": text("NVIDIA H100 80GB HBM3"), "uuid": uuid, "sharing": text("mps"), "enforcement": text("cooperative"),
		}},
		"an MPS share": {agenttest.MPSShare(), map[string]resourceapi.DeviceAttribute{
			"productName": text("NVIDIA H100 80GB HBM3"), "uuid": uuid, "sharing": text("mps"), "enforcement": text("cooperative"), "memoryEnforcement": text("cooperative"), "computeEnforcement": text("cooperative"),
			"shareMemory": text("10Gi"), "shareCompute": number(50), "shareProcesses": number(2),
			"processThreadPercentage": number(25), "processMemoryLimit": text("4608Mi"),
		}},
		"a plain share of a GPU that MPS could share": {
			share.Terms{Share: &share.Amount{Memory: 1 << 30}},
			map[string]resourceapi.DeviceAttribute{
				"productName": text("NVIDIA H100 80GB HBM3"), "uuid": uuid, "sharing": text("none"), "enforcement": text("none"), "memoryEnforcement": text("none"), "computeEnforcement": text("none"),
				"shareMemory": text("1Gi"),
			},
		},
		"a share that the driver limits": {
			share.Terms{Share: &share.Amount{Memory: 4 << 30}, Limit: &share.Limit{Memory: 2 << 30, Containers: 2}},
			map[string]resourceapi.DeviceAttribute{
				"productName": text("NVIDIA H100 80GB HBM3"), "uuid": uuid, "sharing": text("none"), "enforcement": text("none"),
				"memoryEnforcement": text("driver"), "computeEnforcement": text("none"),
				"shareMemory": text("4Gi"), "shareContainers": number(2), "containerMemoryLimit": text("2Gi"),
			},
		},
		"turns on a GPU": {
			share.Terms{TimeSlice: gpu.TimeSliceShort},
			map[string]resourceapi.DeviceAttribute{
				"productName": text("NVIDIA H100 80GB HBM3"), "uuid": uuid, "sharing": text("timeslice"), "enforcement": text("none"), "memoryEnforcement": text("none"), "computeEnforcement": text("none"),
				"timeSlice": text("Short"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := agenttest.Device()
			d.Terms, d.Attributes = tc.terms, published()
			require.Same(t, "attributes", tc.want, metadataOf(d).Attributes)
		})
	}
}

// Upstream's decoder refuses a file that breaks the rules of the API. A share of a GB200
// with list attributes has the most attributes.
func TestUpstreamReadsTheMetadataOfEveryGPU(t *testing.T) {
	terms := agenttest.MPSShare()
	terms.Limit = &share.Limit{Memory: 10 << 30, Containers: 1}
	for _, model := range nvmlsim.ModelNames() {
		m, err := nvmlsim.LoadModel(model)
		must(t, err)
		sim, err := nvmlsim.Create(files.ShortDir(t), m)
		must(t, err)
		node, err := inventory.Read(t.Context(), sysfs.Root(sim.Root()), nvml.New(sim.NVML()).Snapshot)
		must(t, err)
		c := catalog.New(catalog.Inputs{
			Settings: catalog.Settings{ListAttributes: true}, NodeConfig: catalog.NodeConfig{Offer: "share", Shares: catalog.ShareOffer{MPS: true}},
		})
		d := agenttest.Device()
		d.Terms, d.Attributes = terms, map[string]resourceapi.DeviceAttribute{}
		for name, value := range c.Attributes(node, kind.Whole(node.GPUs[0].Address)) {
			d.Attributes[string(name)] = value
		}
		got := metadataOf(d).Attributes
		for _, name := range []string{"uuid", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode", "cpus", "shareMemory", "containerMemoryLimit"} {
			if _, ok := got[name]; !ok {
				t.Errorf("%s: no %s in %v", model, name, slices.Sorted(maps.Keys(got)))
			}
		}
		device := metadata.Device{Driver: agenttest.Driver, Pool: "node-1", Name: d.Name.String(), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
		for name, value := range got {
			device.Attributes[resourceapi.QualifiedName(name)] = value
		}
		object := &metadata.DeviceMetadata{Requests: []metadata.DeviceMetadataRequest{{Name: "gpu", Devices: []metadata.Device{device}}}}
		if err := metadata.Validate_DeviceMetadata(t.Context(), operation.Operation{Type: operation.Create}, nil, object, nil).ToAggregate(); err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestTheTimeToPrepareAShareHasItsOwnLabel(t *testing.T) {
	whole, part, slot := agenttest.Device(), agenttest.Device(), agenttest.Device()
	part.Terms = agenttest.MPSShare()
	slot.Name = kindtest.Name("gpu-1b-00-ts")
	for want, devices := range map[string][]claim.Device{
		"gpu": {whole}, "gpu-share": {part, part}, "gpu+gpu-share": {part, whole}, "timeslice": {slot}, "unknown": nil,
	} {
		if got := kindsOf(devices); got != want {
			t.Errorf("kinds of %d devices: %s, want %s", len(devices), got, want)
		}
	}
}
