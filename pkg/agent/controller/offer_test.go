// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2/ktesting"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

// halves are GPUs that can be cut in two.
func halves(n int) gpu.Node {
	node := gpus(n)
	for i := range node.GPUs {
		node.GPUs[i].ComputeCapability = gpu.Version{Major: 9}
		node.GPUs[i].MIG = gpu.MIG{Capable: true, Profiles: []gpu.ProfileInfo{{
			Profile: gpu.Profile{Slices: 3, MemoryGB: 40}, MemoryBytes: 40 << 30, ComputeSlices: 3, MaxInstances: 2,
			Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}},
		}}}
	}
	return node
}

func half(start int) gpu.Partition {
	return gpu.Partition{Profile: gpu.Profile{Slices: 3, MemoryGB: 40}, Placement: gpu.Placement{Start: start, Size: 4}, UUID: fmt.Sprintf("MIG-%d", start), GPUInstanceID: 1 + start}
}

// labelledNode is the claims and the node's label around a rig.
type labelledNode struct {
	*rig
	labels chan map[string]string

	mu                  sync.Mutex
	held                catalog.Held
	taken               []claim.Device
	switched, exclusive map[gpu.PCIAddress]bool
	err                 error
}

// devices returns held devices of which claims take an unknown amount.
func devices(held catalog.Held) []claim.Device {
	var all []claim.Device
	for name, shared := range held {
		d := claim.Device{Name: name, Terms: share.Terms{Share: &share.Amount{}}}
		if shared {
			d.ShareID = new(types.UID)
		}
		all = append(all, d)
	}
	return all
}

// startIn runs a controller that offers shares unless the label says otherwise.
func startIn(t *testing.T, hw *hardware, held catalog.Held, label map[string]string) *labelledNode {
	hw.events = make(chan gpu.Event)
	c := &labelledNode{rig: &rig{t: t, hw: hw}, labels: make(chan map[string]string), held: held}
	c.node = newNode(parts{
		Hardware: hw,
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			c.rig.mu.Lock()
			defer c.rig.mu.Unlock()
			c.published = append(c.published, *resources.DeepCopy())
			return nil
		},
		Claims: func() (claimed, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return claimed{devices: append(devices(c.held), c.taken...), switched: maps.Clone(c.switched), exclusive: maps.Clone(c.exclusive)}, c.err
		},
		Node: func(ctx context.Context, on func(cluster.Node, error)) {
			on(cluster.Node{Labels: label}, nil)
			for {
				select {
				case labels := <-c.labels:
					if labels == nil {
						on(cluster.Node{}, errors.New("forbidden"))
					} else {
						on(cluster.Node{Labels: labels}, nil)
					}
				case <-ctx.Done():
					return
				}
			}
		},
		Catalog: catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: "share"}},
	})
	_, ctx := ktesting.NewTestContext(t)
	run(ctx, t, c.node)
	return c
}

func (c *labelledNode) label(value string) {
	c.labels <- map[string]string{v1alpha1.LabelOffer: value}
	synctest.Wait()
}

func (c *labelledNode) hold(held catalog.Held) {
	c.mu.Lock()
	c.held = held
	c.mu.Unlock()
	c.Ledger.Changed()
	c.pass(2 * time.Second)
}

// switchMode records that a claim has switched on the MIG mode of the i-th GPU.
func (c *labelledNode) switchMode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.switched = map[gpu.PCIAddress]bool{address(i): true}
}

// names are the devices that are published, with their taints.
func (c *labelledNode) names() string {
	var names []string
	for _, line := range strings.Split(c.shown(), "\n") {
		if !strings.HasPrefix(line, "slice") {
			names = append(names, strings.TrimSuffix(line, " exclusive"))
		}
	}
	return strings.Join(names, ", ")
}

func (c *labelledNode) wantNames(want string) {
	c.t.Helper()
	if got := c.names(); got != want {
		c.t.Errorf("published %s\n     want %s", got, want)
	}
}

const cutInHalves = "gpu-01-00, gpu-01-00-mig-3g-40gb-0, gpu-01-00-mig-3g-40gb-4"

func TestTheNodesLabelChangesTheOfferWhileTheAgentRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: halves(1)}, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		c.wantNames(cutInHalves)
		if c.times() != 1 {
			t.Errorf("published %d times at the start: the label comes first", c.times())
		}
		if got := len(c.Devices()); got != 3 {
			t.Errorf("health of %d devices is known", got)
		}
		c.label("share")
		c.wantNames("gpu-01-00")
		c.label("mig")
		c.wantNames(cutInHalves)
		c.labels <- map[string]string{}
		synctest.Wait()
		c.wantNames("gpu-01-00")
	})
}

// The scheduler tries all pending pods again at each change.
func TestTheOrderOfDevicesFollowsTheClaimsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: gpus(2)}, nil, nil)
		c.mu.Lock()
		c.taken = []claim.Device{{Name: kindtest.Name("gpu-01-00"), ShareID: new(types.UID)}}
		c.mu.Unlock()
		c.Ledger.Changed()
		c.pass(20 * time.Second)
		c.wantNames("gpu-01-00 – 02-00, gpu-02-00 – 01-00")
		c.Ledger.Changed()
		c.pass(11 * time.Second)
		c.wantNames("gpu-02-00 – 01-00, gpu-01-00 – 02-00")

		before := c.times()
		c.mu.Lock()
		c.taken, c.err = nil, errors.New("the disk does not answer")
		c.mu.Unlock()
		c.Ledger.Changed()
		c.pass(time.Minute)
		if n := c.times() - before; n != 0 {
			t.Errorf("published %d times although what claims take is not known", n)
		}
	})
}

func TestALabelThatCannotBeUnderstoodChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: halves(1)}, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		c.label("share.teleport")
		c.wantNames(cutInHalves)
		if state := c.State().String(); !strings.Contains(state, "gpu.nvidia.com/offer=share.teleport is not followed") || !strings.Contains(state, `still offers "share,mig"`) {
			t.Errorf("state %s", state)
		}
		c.label("share.mig")
		if state := c.State().String(); state != "Published: 3 of 3 devices healthy" {
			t.Errorf("state %s", state)
		}
		c.labels <- nil
		synctest.Wait()
		c.wantNames(cutInHalves)
		if state := c.State().String(); !strings.Contains(state, "out of reach: forbidden") {
			t.Errorf("state %s", state)
		}
	})
}

// The flag differs from the node's label.
func TestALabelThatCannotBeFollowedAtTheStartOffersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: halves(1)}, nil, map[string]string{v1alpha1.LabelOffer: "?"})
		c.wantNames("")
		c.label("share")
		c.wantNames("gpu-01-00")
	})
}

func TestWhatAClaimHoldsGoesWhenItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: halves(1)}
		c := startIn(t, hw, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		c.hold(catalog.Held{kindtest.Name("gpu-01-00-mig-3g-40gb-4"): false})
		if c.times() != 1 {
			t.Errorf("published %d times although the offer is the same", c.times())
		}
		c.label("share")
		c.wantNames("gpu-01-00, gpu-01-00-mig-3g-40gb-4 (mig)")
		c.mu.Lock()
		c.err = errors.New("disk")
		c.mu.Unlock()
		c.hold(nil)
		c.wantNames("gpu-01-00, gpu-01-00-mig-3g-40gb-4 (mig)")
		c.mu.Lock()
		c.err = nil
		c.mu.Unlock()
		c.hold(nil)
		c.wantNames("gpu-01-00")
	})
}

func TestWhatClaimsMakeOfAGPUChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: halves(1)}
		c := startIn(t, hw, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		c.switchMode(0)
		c.hold(catalog.Held{kindtest.Name("gpu-01-00-mig-3g-40gb-0"): false})
		hw.change(func(h *hardware) {
			h.node.GPUs[0].MIG.Enabled = true
			h.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0)}
		})
		c.Inventory.RequestScan()
		c.pass(time.Minute)
		c.wantNames(cutInHalves)
		if c.times() != 1 {
			t.Errorf("published %d times", c.times())
		}
		g, err := c.GPU(t.Context(), address(0))
		if err != nil || g.MIG.Enabled || len(g.MIG.Partitions) != 0 {
			t.Errorf("the GPU without what claims made of it: %+v, %v", g.MIG, err)
		}
	})
}

func TestPartitionsOfOtherOwnersReduceTheOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: halves(1)}
		c := startIn(t, hw, nil, map[string]string{v1alpha1.LabelOffer: "share.mig"})
		hw.change(func(h *hardware) {
			h.node.GPUs[0].MIG.Enabled = true
			h.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(0)}
		})
		c.Inventory.RequestScan()
		c.pass(time.Minute)
		c.wantNames("gpu-01-00 (enabled), gpu-01-00-mig-3g-40gb-4")
		// The mode stays the administrator's while a claim holds the other half.
		c.hold(catalog.Held{kindtest.Name("gpu-01-00-mig-3g-40gb-4"): false})
		hw.change(func(h *hardware) { h.node.GPUs[0].MIG.Partitions = []gpu.Partition{half(4)} })
		c.Inventory.RequestScan()
		c.pass(time.Minute)
		c.wantNames("gpu-01-00 (enabled), gpu-01-00-mig-3g-40gb-0, gpu-01-00-mig-3g-40gb-4")
		c.hold(nil)
		hw.change(func(h *hardware) { h.node.GPUs[0].MIG.Enabled, h.node.GPUs[0].MIG.Partitions = false, nil })
		c.Inventory.RequestScan()
		c.pass(time.Minute)
		c.wantNames(cutInHalves)
	})
}

func TestTimeSlicesComeAndGoWithTheLabelAndStayWhileTheyAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: gpus(1)}, nil, map[string]string{v1alpha1.LabelOffer: "share.timeslice"})
		c.wantNames("gpu-01-00, gpu-01-00-ts")
		if state := c.State().String(); state != "Published: 2 of 2 devices healthy" {
			t.Errorf("state %s", state)
		}
		c.hold(catalog.Held{kindtest.Name("gpu-01-00-ts"): true})
		c.label("share")
		c.wantNames("gpu-01-00, gpu-01-00-ts (timeslice)")
		c.hold(nil)
		c.wantNames("gpu-01-00")
	})
}

func TestWithoutPartitionableDevicesGPUsAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startIn(t, &hardware{node: halves(1)}, nil, map[string]string{v1alpha1.LabelOffer: "share.mig.timeslice"})
		c.wantNames("gpu-01-00, gpu-01-00-ts, gpu-01-00-mig-3g-40gb-0, gpu-01-00-mig-3g-40gb-4")
		desired := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: c.published[0].Pools["node-1"].Slices[0].Devices}}
		actual := desired.DeepCopy()
		for i := range actual.Spec.Devices {
			actual.Spec.Devices[i].ConsumesCounters = nil
		}
		c.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "node-1", DesiredSlice: desired, ActualSlice: actual}, "create ResourceSlice")
		synctest.Wait()
		c.wantNames("gpu-01-00")
		// What claims hold all the same stays.
		c.hold(catalog.Held{kindtest.Name("gpu-01-00-ts"): true})
		c.wantNames("gpu-01-00, gpu-01-00-ts (timeslice)")
	})
}

// A change of the compute mode has no event. So the inventory scans once a minute
// while a compute mode excludes claims, and rarely after that.
func TestAComputeModeThatIsChangedBackIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(1)}
		hw.node.GPUs[0].ComputeMode = gpu.ComputeModeProhibited
		c := startIn(t, hw, nil, nil)
		c.wantNames("gpu-01-00 (prohibited)")
		hw.change(func(h *hardware) {
			h.node.GPUs = gpus(1).GPUs
			h.node.GPUs[0].ComputeMode = gpu.ComputeModeDefault
		})
		c.pass(2 * time.Minute)
		c.wantNames("gpu-01-00")
		looks := c.looks()
		c.pass(time.Hour)
		if c.looks() > looks+6 {
			t.Errorf("scanned %d times in an hour without a reason", c.looks()-looks)
		}
	})
}

// A GPU that claims have put into EXCLUSIVE_PROCESS has no taint, and is not scanned
// more often.
func TestAComputeModeThatClaimsSetIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(1)}
		hw.node.GPUs[0].ComputeMode = gpu.ComputeModeExclusiveProcess
		c := startIn(t, hw, nil, map[string]string{"gpu.nvidia.com/offer": "timeslice"})
		c.wantNames("gpu-01-00, gpu-01-00-ts (exclusive-process)")
		scan := func(change func()) {
			c.mu.Lock()
			change()
			c.mu.Unlock()
			c.Inventory.RequestScan()
			c.pass(time.Second)
		}
		scan(func() { c.exclusive = map[gpu.PCIAddress]bool{address(0): true} })
		c.wantNames("gpu-01-00, gpu-01-00-ts")
		if g, err := c.GPU(t.Context(), address(0)); err != nil || g.ComputeMode != gpu.ComputeModeDefault {
			t.Errorf("compute mode %s, %v", g.ComputeMode, err)
		}
		// A disk that fails for a moment does not make the mode an administrator's.
		scan(func() { c.err = errors.New("disk") })
		c.wantNames("gpu-01-00, gpu-01-00-ts")
		scan(func() { c.err = nil })
		looks := c.looks()
		c.pass(time.Hour)
		if c.looks() > looks+6 {
			t.Errorf("scanned %d times in an hour without a reason", c.looks()-looks)
		}
		// Any other mode is an administrator's.
		hw.change(func(h *hardware) {
			h.node.GPUs = gpus(1).GPUs
			h.node.GPUs[0].ComputeMode = gpu.ComputeModeProhibited
		})
		scan(func() {})
		c.wantNames("gpu-01-00 (prohibited), gpu-01-00-ts (prohibited)")
	})
}
