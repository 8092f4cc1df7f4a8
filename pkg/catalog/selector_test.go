// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The scheduler fails a claim if a selector reads a capacity that a device lacks. The
// scheduler tries that device, and the pod fails with the claim. So every device has
// memory: also a GPU that does not answer, and one of a kind that was added later.
func TestASelectorOnMemoryFailsOnNoDevice(t *testing.T) {
	every := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "every.nvidia.com"}}
	words := catalog.KnownOffers()
	for set := range 1 << len(words) {
		var offered []string
		for i, word := range words {
			if set&(1<<i) != 0 {
				offered = append(offered, word)
			}
		}
		t.Run(strings.Join(offered, ","), func(t *testing.T) {
			offer := catalog.Offer("")
			if len(offered) > 0 {
				var err error
				offer, err = catalog.ParseOffer(strings.Join(offered, ","))
				must(t, err)
			}
			for name, restrictions := range map[string]catalog.Restrictions{
				"with all features": {}, "without consumable capacity": {Exclusive: true}, "without counters": {NoCounters: true},
			} {
				c := catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: offer, Shares: catalog.ShareOffer{MPS: true, Smallest: 1 << 30}}, Restrictions: restrictions}
				hardware := first(t, 2, "dgx-h100")
				hardware.GPUs = append(hardware.GPUs, gpu.GPU{Address: gpu.PCIAddress{Bus: 0xfe}})
				c.Conditions = catalog.Conditions{{Bus: 0xfe}: {Fault: "it does not answer"}}
				resources := catalog.New(c).Resources(hardware, nil)
				for _, slice := range resources.Pools["node-1"].Slices {
					for _, device := range slice.Devices {
						if _, has := device.Capacity["memory"]; !has {
							t.Errorf("%s: %s has no memory", name, device.Name)
						}
					}
				}
				// More than any device has, so that the scheduler tries each of them.
				request := claim("class=every cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('1Ti')) >= 0")
				node := allocator.NewNode(resources, allocator.Features(), slices.Concat(classes(t), []*resourceapi.DeviceClass{every})...)
				_, err := node.Allocate(t.Context(), "c", request)
				require.Error(t, name, err, allocator.ErrNoFit)
				request = claim("class=every cel=device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0")
				if results, err := node.Allocate(t.Context(), "c", request); err != nil || results[0].Device != "gpu-1b-00" {
					t.Errorf("%s: %v, error %v, want the first GPU", name, results, err)
				}
			}
		})
	}
}
