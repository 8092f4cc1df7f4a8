package controller_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

// Faults of simulated hardware reach what is published through the real
// adapter, and nothing here knows when it has begun to watch: a fault is
// therefore repeated until it is seen.
func TestFaultsOfTheSimulatorReachWhatIsPublished(t *testing.T) {
	model, err := nvmlsim.LoadModel("dgx1-v100")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.Create(t.TempDir(), model)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	r.Controller = controller.New(controller.Options{
		Hardware: nvml.New(sim.NVML()),
		Publish: func(_ context.Context, resources resourceslice.DriverResources) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.published = append(r.published, resources)
			return nil
		},
		Catalog: catalog.Catalog{Pool: "node-1"},
		Clock:   clock.RealClock{},
	})
	changed, unsubscribe := r.Subscribe()
	defer unsubscribe()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()

	giveUp := time.After(2 * time.Minute)
	until := func(what string, cause func() error) {
		t.Helper()
		for !slices.Contains(strings.Split(r.shown(), "\n"), what) {
			if err := cause(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-time.After(time.Second):
			case <-giveUp:
				t.Fatalf("%q is not published:\n%s", what, r.shown())
			}
		}
	}
	nothing := func() error { return nil }
	until("gpu-06-00 – 07-00,0a-00,0b-00,85-00 exclusive", nothing)
	until("gpu-07-00 – 06-00,0a-00,0b-00,86-00 (xid-48) exclusive", func() error { return sim.ReportXID(1, 48) })
	until("gpu-06-00 (xid-74) exclusive", func() error {
		for link := range 6 {
			if err := sim.LinkDown(0, link); err != nil {
				return err
			}
		}
		return nil
	})
	until("gpu-8a-00 (xid-79) exclusive", func() error { return sim.LoseGPU(7) })
}
