// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// plain is the publication with which all others are compared.
const plain = "plain"

// describeFunc returns the resources of a node of which claims take memory.
type describeFunc func(pool string, node gpu.Node, taken catalog.Taken) (resourceslice.DriverResources, error)

// publication is a way to publish a node.
type publication struct {
	name     string
	describe describeFunc
	// measured and filling are kinds of claims: of the pods, and of the claims that fill
	// the fleet.
	measured, filling []string
	// gpus is how many GPUs of a node claims can hold, by [claimKind.gpus]; 0 is all.
	gpus float64
}

// fillingKinds returns the kinds of claims that fill the fleet, in the order of [claimKinds].
func (p publication) fillingKinds() []claimKind {
	return slices.DeleteFunc(claimKinds(), func(k claimKind) bool { return !slices.Contains(p.filling, k.name) })
}

func publications() []publication {
	wholes, shares := []string{"whole", "linked"}, []string{"whole", "share", "linked"}
	mix := []string{"whole", "share-5Gi", "share", "share-20Gi"}
	mig, partitions := []string{"mig", "mig-class"}, []string{"mig", "mig-2g", "mig-3g"}
	fewest := func(c *catalog.Inputs) { c.Selection = kind.Selection{Level: kind.LevelLean} }
	twoGPUs := func(c *catalog.Inputs) { c.MIG.GPUs = 2 }
	return []publication{
		{plain, exclusive, slices.Concat([]string{"none"}, wholes), []string{"whole"}, 0},
		{"lean", offered("share", fewest), shares, mix, 0},
		{"standard", offered("share", nil), shares, mix, 0},
		{"share+timeslice", offered("share.timeslice", nil), slices.Concat(shares, []string{"slot"}), slices.Concat(mix, []string{"slot"}), 0},
		{"layout-3g-2g-1g-1g", layoutOf("mig", "3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2"), mig, partitions, 0},
		{"share+layout", layoutOf("share,mig", "3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2"), mig, partitions, 0},
		{"layout-7x1g", layoutOf("mig", "1g.10gb: 7"), mig, []string{"mig"}, 7},
		{"share+mig-on-two", offered("share.mig", twoGPUs), slices.Concat(shares, mig), slices.Concat(mix, partitions), 0},
		{"share+mig", offered("share.mig", nil), slices.Concat(shares, mig), slices.Concat(mix, partitions), 0},
	}
}

func publicationNames() []string {
	var names []string
	for _, p := range publications() {
		names = append(names, p.name)
	}
	return names
}

// exclusive publishes GPUs for one claim at a time, with the attributes that each driver of
// GPUs has.
func exclusive(pool string, node gpu.Node, _ catalog.Taken) (resourceslice.DriverResources, error) {
	resources := catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: pool}}).Resources(node, nil)
	for _, slice := range resources.Pools[pool].Slices {
		for i, device := range slice.Devices {
			kept := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
			for _, name := range []resourceapi.QualifiedName{"type", "uuid", "productName", "architecture", "cudaComputeCapability", "nvlinkDomain"} {
				kept[name] = device.Attributes[name]
			}
			slice.Devices[i].Attributes = kept
		}
	}
	return resources, nil
}

// offered publishes the devices of an agent with the offer and MPS. The offer is written as in
// the label of a node.
func offered(offer string, change func(*catalog.Inputs)) describeFunc {
	return func(pool string, node gpu.Node, taken catalog.Taken) (resourceslice.DriverResources, error) {
		parsed, err := catalog.ParseOfferLabel(offer)
		if err != nil {
			return resourceslice.DriverResources{}, err
		}
		c := catalog.Inputs{Settings: catalog.Settings{Pool: pool}, NodeConfig: catalog.NodeConfig{Offer: parsed, Shares: mps()}}
		c.Taken = taken
		if change != nil {
			change(&c)
		}
		return catalog.New(c).Resources(node, nil), nil
	}
}

// layoutOf publishes the same MIG devices of every GPU, named as in files of mig-parted.
func layoutOf(offer catalog.Offer, devices string) describeFunc {
	return func(pool string, node gpu.Node, taken catalog.Taken) (resourceslice.DriverResources, error) {
		file, err := migconfig.Parse([]byte("version: v1\nmig-configs: {scale: [{devices: all, mig-enabled: true, mig-devices: {" + devices + "}}]}"))
		if err != nil {
			return resourceslice.DriverResources{}, err
		}
		config, err := file.Config("scale")
		if err != nil {
			return resourceslice.DriverResources{}, err
		}
		c := catalog.Inputs{Settings: catalog.Settings{Pool: pool}, NodeConfig: catalog.NodeConfig{
			Offer: offer, Shares: mps(), MIG: catalog.MIGOffer{Config: config},
		}}
		if c.Partitions, err = c.MIG.Layout(node); err != nil {
			return resourceslice.DriverResources{}, err
		}
		c.Taken = taken
		return catalog.New(c).Resources(node, nil), nil
	}
}

// mps returns how a node with the default flags offers shares.
func mps() catalog.ShareOffer {
	return catalog.ShareOffer{MPS: true, Smallest: 1 << 30, ServerMemory: 64 << 20}
}

// dgxH100 returns a simulated node of eight H100s.
func dgxH100(ctx context.Context) (_ gpu.Node, err error) {
	model, err := nvmlsim.LoadModel("dgx-h100")
	if err != nil {
		return gpu.Node{}, err
	}
	folder, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return gpu.Node{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	sim, err := nvmlsim.Create(filepath.Join(folder, "sim"), model)
	if err != nil {
		return gpu.Node{}, err
	}
	node, err := nvml.New(sim.NVML()).Snapshot(ctx)
	if err != nil {
		return gpu.Node{}, err
	}
	return sysfs.Root(sim.Root()).Locate(node)
}
