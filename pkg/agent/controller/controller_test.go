// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// rig is a running controller in a synctest bubble. The test writes the state.
type rig struct {
	*controller.Controller
	*state.State
	t   *testing.T
	log ktesting.Buffer

	mu         sync.Mutex
	published  []resourceslice.DriverResources
	publishErr error
}

// start runs a controller of a node whose features and external allocations are known.
func start(t *testing.T) *rig {
	t.Helper()
	s := state.New(state.Fixed{})
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	r := &rig{State: s, t: t, log: logger.GetSink().(ktesting.Underlier).GetBuffer()}
	r.Controller = controller.New(controller.Options{State: s, Settings: catalog.Settings{Pool: "node-1"}, Clock: clock.RealClock{}})
	s.Features.Set(state.Features{Known: true})
	s.Conditions.Set(state.Conditions{ExternalKnown: true})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, r.publish) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func (r *rig) publish(_ context.Context, resources resourceslice.DriverResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publishErr == nil {
		r.published = append(r.published, *resources.DeepCopy())
	}
	return r.publishErr
}

func (r *rig) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publishErr = err
}

// see sets the hardware and a configuration with the offer that follows from it.
func (r *rig) see(h state.Hardware, offer catalog.Offer) {
	r.Hardware.Set(h)
	r.Configuration.Set(state.Configuration{
		Known: true, Hardware: r.Revisions().Hardware, Followed: catalog.NodeRecord{Config: catalog.NodeConfig{Offer: offer}},
	})
	synctest.Wait()
}

// want compares the names of the published devices with their taints, how often devices were
// published, and the state.
func (r *rig) want(devices string, times int, text string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	if len(r.published) > 0 {
		for _, slice := range r.published[len(r.published)-1].Pools["node-1"].Slices {
			for _, d := range slice.Devices {
				names = append(names, d.Name)
				for _, taint := range d.Taints {
					names = append(names, "("+taint.Value+")")
				}
			}
		}
	}
	if got := strings.Join(names, " "); got != devices || len(r.published) != times {
		r.t.Errorf("published %q, %d times; want %q, %d", got, len(r.published), devices, times)
	}
	if got := r.Controller.State().String(); got != text {
		r.t.Errorf("state %q\n want %q", got, text)
	}
}

// gpus is the hardware of a node with GPUs.
func gpus(n int) state.Hardware {
	node := gpu.Node{DriverVersion: "570.86.15"}
	for i := range n {
		node.GPUs = append(node.GPUs, gpu.GPU{Address: address(i), UUID: fmt.Sprintf("GPU-%d", i), MemoryBytes: 80 << 30})
	}
	return state.HardwareOf(node)
}

func address(i int) gpu.PCIAddress { return gpu.PCIAddress{Bus: uint8(i + 1)} }

// without returns the hardware after a scan that failed.
func without(err error) state.Hardware { return state.Hardware{Scanned: true, Err: err} }

func TestANodeIsPublishedWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.see(without(fmt.Errorf("load libnvidia-ml.so.1: %w", gpu.ErrNotReady)), "")
		r.want("", 1, "NoDriver; load libnvidia-ml.so.1: not ready")
		began := r.Controller.State().Since
		<-time.After(time.Hour)
		r.see(without(fmt.Errorf("load libnvidia-ml.so.2: %w", gpu.ErrNotReady)), "")
		if since := r.Controller.State().Since; since != began {
			t.Errorf("NoDriver since %v, which became %v", began, since)
		}
		r.see(state.HardwareOf(gpu.Node{DriverVersion: "570.86.15"}), "")
		r.want("", 1, "NoGPUs")
		r.see(gpus(2), "")
		r.want("gpu-01-00 gpu-02-00", 2, "Published: 2 of 2 devices healthy")
		r.Conditions.Set(state.Conditions{ExternalKnown: true, Repairs: errors.New("no such GPU")})
		synctest.Wait()
		r.want("gpu-01-00 gpu-02-00", 2, "Published: 2 of 2 devices healthy; no such GPU")
		r.see(gpus(2), "share,timeslice")
		r.want("gpu-01-00 gpu-02-00 gpu-02-00-ts gpu-01-00-ts", 3, "Published: 4 of 4 devices healthy; no such GPU")
	})
}

// An agent that starts does not know the state of a GPU that hangs.
func TestAFirstScanThatHangsKeepsTheSlicesOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.see(without(fmt.Errorf("count the GPUs: %w", gpu.ErrTimeout)), "share")
		r.want("", 0, "Looking; count the GPUs: timed out")
		r.see(gpus(1), "share")
		r.want("gpu-01-00", 1, "Published: 1 of 1 devices healthy")
	})
}

func TestPublishingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.fail(errors.New("no API server"))
		r.see(gpus(1), "share")
		r.want("", 0, "Looking; publish the node's devices: no API server")
		if !r.Controller.State().Unpublished {
			t.Error("what could not be published counts as published")
		}
		r.fail(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		r.want("gpu-01-00", 1, "Published: 1 of 1 devices healthy")
		if r.Controller.State().Unpublished {
			t.Error("the published devices count as unpublished")
		}
	})
}

// An API server that does not answer takes no slices either. The slices of an
// earlier agent must not change because of it.
func TestNothingIsPublishedBeforeTheVersionOfTheAPIServerIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.Features.Set(state.Features{Known: true, Err: errors.New("connection refused")})
		r.see(gpus(1), "share,timeslice")
		r.want("", 0, "Looking; connection refused")
		if !r.Controller.State().Unpublished {
			t.Error("an agent that has published nothing looks ready")
		}
		r.Features.Set(state.Features{Known: true})
		synctest.Wait()
		r.want("gpu-01-00 gpu-01-00-ts", 1, "Published: 2 of 2 devices healthy")
	})
}

func TestAnOldAPIServerIsLoggedOnceIfTheOfferNeedsCounters(t *testing.T) {
	for offer, want := range map[catalog.Offer]int{"share,monitor": 0, "share,timeslice": 1} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t)
			r.Features.Set(state.Features{Known: true, OldVersion: "v1.36.1", Restrictions: catalog.Restrictions{NoCounters: true}})
			r.see(gpus(1), offer)
			r.see(gpus(2), offer)
			log := r.log.String()
			if got := strings.Count(log, "API server is too old"); got != want || want > 0 && !strings.Contains(log, "1.36.2") {
				t.Errorf("%s: want %d warnings that name 1.36.2, got:\n%s", offer, want, log)
			}
		})
	}
}

func TestSubscribersHearOfTheHealthOfEachDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.see(gpus(2), "monitor")
		changed, cancel := r.Controller.Subscribe()
		defer cancel()
		all := kindtest.Name("node-gpus")
		want := func(devices ...state.DeviceHealth) {
			t.Helper()
			synctest.Wait()
			select {
			case <-changed:
			default:
				t.Error("no change")
			}
			require.Same(t, "devices", devices, r.Devices())
		}
		r.Conditions.Set(state.Conditions{ExternalKnown: true, Faults: []state.Fault{{UUID: "GPU-1", Cause: "xid-79", Message: "XID 79", Decisive: "xid-79"}}})
		first, second := state.DeviceHealth{Name: kind.Whole(address(0)), UUID: "GPU-0", Healthy: true}, state.DeviceHealth{Name: kind.Whole(address(1)), UUID: "GPU-1", Cause: "xid-79", Message: "XID 79"}
		want(first, second, state.DeviceHealth{Name: all, Healthy: true})
		r.want("gpu-01-00 gpu-02-00 (xid-79) node-gpus", 2, "Published: 2 of 3 devices healthy; GPU at 0000:02:00.0: XID 79")
		// The device that is all GPUs is well as long as one of them answers.
		lost := gpus(2)
		for i := range lost.GPUs {
			lost.GPUs[i].Err = gpu.ErrLost
		}
		r.see(lost, "monitor")
		first.Healthy, first.Cause, first.Message = false, "lost", "the GPU does not answer: it has fallen off the bus, or was removed: GPU lost"
		second.Message += "; " + first.Message
		want(first, second, state.DeviceHealth{Name: all, Cause: "lost", Message: "no GPU of the node answers"})
		if got := r.Capacities()["gpu-01-00"]; len(got) == 0 {
			t.Errorf("capacities %v", got)
		}
	})
}

func TestWhyMemoryIsNotLimitedIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		h := gpus(2)
		h.GPUs[0].GPU.MemoryLimits, h.GPUs[1].GPU.NoMemoryLimits = true, "the driver is old"
		r.see(h, "share")
		r.see(h, "")
		log := r.log.String()
		for _, want := range []string{"The driver limits the GPU memory of containers", "The driver does not limit the GPU memory of containers"} {
			if strings.Count(log, want) != 1 {
				t.Errorf("want %q once, got:\n%s", want, log)
			}
		}
	})
}
