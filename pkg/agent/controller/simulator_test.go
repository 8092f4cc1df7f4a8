// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2/ktesting"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

// simulated is a controller at work on simulated hardware, through the real
// adapter and in real time.
type simulated struct {
	*rig
	sim     *nvmlsim.Sim
	changed <-chan struct{}
	giveUp  <-chan time.Time
}

// simulate starts a controller on a model, in a state that happens has brought
// about before.
func simulate(t *testing.T, name string, happens func(*nvmlsim.Sim) error) *simulated {
	t.Helper()
	model, err := nvmlsim.LoadModel(name)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Create(files.ShortDir(t), model)
	if err != nil {
		t.Fatal(err)
	}
	if err := happens(sim); err != nil {
		t.Fatal(err)
	}
	s := &simulated{rig: &rig{t: t}, sim: sim, giveUp: time.After(2 * time.Minute)}
	s.node = newNode(parts{
		Hardware: nvml.New(sim.NVML()),
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.published = append(s.published, resources)
			return nil
		},
		Catalog: catalog.Inputs{Settings: catalog.Settings{Pool: "node-1"}, NodeConfig: catalog.NodeConfig{Offer: ""}},
	})
	changed, unsubscribe := s.Subscribe()
	s.changed = changed
	t.Cleanup(unsubscribe)
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := sim.ClearFaults(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// until repeats the cause until a line is published: nothing here knows when the
// controller has begun to watch.
func (s *simulated) until(line string, cause func() error) {
	s.t.Helper()
	for !slices.Contains(strings.Split(s.shown(), "\n"), line) {
		if err := cause(); err != nil {
			s.t.Fatal(err)
		}
		select {
		case <-s.changed:
		case <-time.After(time.Second):
		case <-s.giveUp:
			s.t.Fatalf("%q is not published:\n%s", line, s.shown())
		}
	}
}

func nothing() error { return nil }

func TestFaultsOfTheSimulatorArePublished(t *testing.T) {
	s := simulate(t, "dgx1-v100", func(*nvmlsim.Sim) error { return nil })
	s.until("gpu-06-00 – 07-00,0a-00,0b-00,85-00 exclusive", nothing)
	s.until("gpu-07-00 – 06-00,0a-00,0b-00,86-00 (xid-48) exclusive", func() error { return s.sim.ReportXID(1, 48) })
	s.until("gpu-06-00 (xid-74) exclusive", func() error {
		for link := range 6 {
			if err := s.sim.LinkDown(0, link); err != nil {
				return err
			}
		}
		return nil
	})
	// The watch omits a GPU that is lost during a scan. So the test restores the GPU and
	// loses it again.
	lost := false
	s.until("gpu-8a-00 (xid-79) exclusive", func() error {
		lost = !lost
		if lost {
			return s.sim.LoseGPU(7)
		}
		s.Inventory.RequestScan()
		return s.sim.ClearFaults()
	})
}

func TestTheSimulatorsDriverAsksForRecoveryAndNoMore(t *testing.T) {
	s := simulate(t, "dgx-h100", func(*nvmlsim.Sim) error { return nil })
	const peers = " – 43-00,52-00,61-00,9d-00,c3-00,d1-00,df-00"
	s.until("gpu-1b-00"+peers+" exclusive", nothing)
	s.until("gpu-1b-00"+peers+" (recovery-drain-and-reset) exclusive", func() error { return s.sim.SetRecovery(0, nvmlsim.RecoveryDrainAndReset) })
	s.until("gpu-1b-00"+peers+" exclusive", func() error {
		s.Inventory.RequestScan()
		return s.sim.ResetGPU(0)
	})
}

func TestASimulatedGPUThatHangsFromTheStartLeavesSevenAndComesLate(t *testing.T) {
	s := simulate(t, "dgx-h100", func(sim *nvmlsim.Sim) error { return sim.HangGPU(0) })
	s.until("gpu-43-00 – 52-00,61-00,9d-00,c3-00,d1-00,df-00 exclusive", nothing)
	if got := strings.Count(s.shown(), "exclusive"); got != 7 {
		t.Errorf("%d GPUs are published with one that hangs:\n%s", got, s.shown())
	}
	if _, err := s.GPU(t.Context(), gpu.PCIAddress{Bus: 0x43}); err != nil {
		t.Errorf("a claim on another GPU: %v", err)
	}
	if err := s.sim.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	s.until("gpu-1b-00 – 43-00,52-00,61-00,9d-00,c3-00,d1-00,df-00 exclusive", nothing)

	// One that hangs later keeps its place.
	s.until("gpu-43-00 (timeout) exclusive", func() error {
		s.Inventory.RequestScan()
		return s.sim.HangGPU(1)
	})
}
