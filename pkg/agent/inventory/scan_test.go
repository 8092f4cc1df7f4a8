// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/inventory"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAHealthyNodeIsScannedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &hardware{node: gpus(3)})
		r.want("3 of 3 GPUs answer")
		r.pass(time.Minute)
		looks, before := r.looks(), r.Revisions()
		r.pass(24 * time.Hour)
		if now := r.Revisions(); now != before {
			t.Errorf("the state has changed although nothing has: %+v, before %+v", now, before)
		}
		if a := r.looks() - looks; a < 24*5 || a > 24*6 || looks > 2 {
			t.Errorf("%d scans in the first minute, %d in the day that followed; want one in ten to twelve minutes", looks, a)
		}
	})
}

func TestGPUsAreFoundWhenTheDriverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: fmt.Errorf("load libnvidia-ml.so.1: %w", gpu.ErrNotReady)}
		r := start(t, hw)
		r.want("NoDriver; load libnvidia-ml.so.1: not ready")
		r.pass(time.Hour)
		if looks := r.looks(); looks < 60 || looks > 70 {
			t.Errorf("%d looks in an hour without a driver, want about one a minute", looks)
		}
		hw.change(func(h *hardware) { h.err, h.node = nil, gpu.Node{DriverVersion: "570.86.15"} })
		r.pass(time.Minute)
		r.want("NoGPUs")
		hw.change(func(h *hardware) { h.node = gpus(3) })
		r.pass(time.Minute)
		r.want("3 of 3 GPUs answer")
	})
}

func TestAGPUThatDoesNotAnswerAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3)}
		hw.silence(1, fmt.Errorf("read GPU 1: %w", gpu.ErrLost))
		r := start(t, hw)
		r.want("2 of 2 GPUs answer; GPU at 0000:02:00.0: read GPU 1: GPU lost")
		_, err := r.GPU(t.Context(), address(1))
		require.Error(t, "the GPU that does not answer", err, gpu.ErrLost)
		hw.change(func(h *hardware) { h.node = gpus(3) })
		r.pass(time.Minute)
		r.want("3 of 3 GPUs answer")
	})
}

func TestAGPUThatStopsAnsweringKeepsItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		stops  func(*hardware)
		taints string
		state  string
		is     error
	}{
		"lost":       {func(h *hardware) { h.hide(1, fmt.Errorf("read GPU 1: %w", gpu.ErrLost)) }, "gpu-02-00 lost", "2 of 3 GPUs answer; GPU at 0000:02:00.0: read GPU 1: GPU lost", gpu.ErrLost},
		"hanging":    {func(h *hardware) { h.hide(1, fmt.Errorf("read GPU 1: %w", gpu.ErrTimeout)) }, "gpu-02-00 timeout", "2 of 3 GPUs answer; GPU at 0000:02:00.0: read GPU 1: timed out", gpu.ErrTimeout},
		"not listed": {func(h *hardware) { h.node.GPUs = slices.Delete(h.node.GPUs, 1, 2) }, "gpu-02-00 lost", "2 of 3 GPUs answer; GPU at 0000:02:00.0: GPU lost: the driver no longer lists it", gpu.ErrLost},
		"no driver": {
			func(h *hardware) { h.err, h.node = gpu.ErrNotReady, gpu.Node{} }, "gpu-01-00 driver-not-ready, gpu-02-00 driver-not-ready, gpu-03-00 driver-not-ready", "0 of 3 GPUs answer; not ready", gpu.ErrNotReady,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hw := &hardware{node: gpus(3)}
				r := start(t, hw)
				hw.change(tc.stops)
				r.send(gpu.Event{Kind: gpu.EventLost, UUID: "GPU-1"})
				r.wantTaints(tc.taints)
				r.want(tc.state)
				_, err := r.GPU(t.Context(), address(1))
				require.Error(t, "the GPU that does not answer", err, tc.is)
				hw.change(func(h *hardware) { h.err, h.node = nil, gpus(3) })
				r.pass(time.Minute)
				r.want("3 of 3 GPUs answer")
			})
		})
	}
}

func TestEveryLinkThatGoesDownIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(2)}
		links := []gpu.Link{{Number: 0, Active: true, Remote: gpu.RemoteSwitch}, {Number: 1, Active: true, Remote: gpu.RemoteSwitch}}
		hw.node.GPUs[0].Links = links
		r := start(t, hw)
		for i := range links {
			links = slices.Clone(links)
			links[i].Active = false
			hw.change(func(h *hardware) { h.node.GPUs[0].Links = links })
			r.send(gpu.Event{Kind: gpu.EventLink, UUID: "GPU-0", XID: 74})
			if got := r.Snapshot().Node().GPUs[0].ActiveLinks(); got != 1-i {
				t.Errorf("%d links are active after %d are down", got, i+1)
			}
		}
		r.wantTaints("gpu-01-00 xid-74")
	})
}

func TestWatchingBeginsAgainAfterItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3), watchErr: errors.New("wait for GPU events: unknown error")}
		r := start(t, hw)
		r.pass(time.Hour)
		hw.mu.Lock()
		watches := hw.watches
		hw.mu.Unlock()
		if watches < 60 || watches > 70 {
			t.Errorf("%d attempts to watch in an hour, want about one a minute", watches)
		}
		hw.change(func(h *hardware) { h.watchErr = nil })
		r.pass(time.Minute)
		hw.silence(1, gpu.ErrLost)
		r.send(gpu.Event{Kind: gpu.EventLost, UUID: "GPU-1"})
		r.wantTaints("gpu-02-00 lost")
	})
}

func TestWithoutEventsTheGPUsAreFoundAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(3), watchErr: gpu.ErrNotSupported}
		r := start(t, hw)
		r.pass(time.Hour)
		r.want("3 of 3 GPUs answer")
		if hw.watches != 1 {
			t.Errorf("%d attempts to watch", hw.watches)
		}
	})
}

func TestGPUWaitsForTheFirstScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{err: gpu.ErrNotReady}
		r := start(t, hw)
		brief, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := r.GPU(brief, address(0))
		require.Error(t, "without a driver", err, gpu.ErrNotReady, "NoDriver")

		found := make(chan error, 1)
		go func() {
			g, err := r.GPU(t.Context(), address(0))
			if err == nil && g.UUID != "GPU-0" {
				err = fmt.Errorf("got %s", g.UUID)
			}
			found <- err
		}()
		synctest.Wait()
		hw.change(func(h *hardware) { h.err, h.node = nil, gpus(2) })
		if err := <-found; err != nil {
			t.Errorf("when the driver has come: %v", err)
		}
		_, err = r.GPU(t.Context(), address(7))
		require.Error(t, "a GPU that the node does not have", err, gpu.ErrNotFound)
	})
}

// claims are what claims have made of the GPUs.
type claims struct {
	mu  sync.Mutex
	now state.Claimed
}

func (c *claims) Read(context.Context) state.Claimed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *claims) set(changes state.Changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Changes = changes
}

// Claims start and end during a scan. A MIG device that a claim held at the beginning
// or at the end of a scan belongs to the claim.
func TestAMIGDeviceOfAClaimThatChangesDuringAScanBelongsToTheClaim(t *testing.T) {
	profile := gpu.Profile{Slices: 3, MemoryGB: 40}
	theirs := state.Changes{Held: catalog.Held{kind.Partition(address(0), profile, 0): false}}
	for name, tc := range map[string]struct{ before, after state.Changes }{
		"it comes": {state.Changes{}, theirs},
		"it goes":  {theirs, state.Changes{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held, hw := &claims{}, &hardware{node: gpus(2)}
				held.set(tc.before)
				r := startBeside(t, hw, held, func(*inventory.Options) {})
				hw.change(func(h *hardware) {
					h.node.GPUs[0].MIG.Partitions = []gpu.Partition{{Profile: profile, Placement: gpu.Placement{Size: 4}, UUID: "MIG-0"}}
				})
				hw.hang(1) // the scan waits for it
				r.scan()
				held.set(tc.after)
				hw.hang()
				r.pass(2 * time.Second)
				g, err := r.GPU(t.Context(), address(0))
				must(t, err)
				if len(g.MIG.Partitions) != 0 {
					t.Errorf("the GPU has %v, want nothing but what claims make of it", g.MIG.Partitions)
				}
			})
		})
	}
}

// A change of the compute mode has no event. So the inventory scans once a minute while a compute
// mode excludes claims, and rarely if claims have set it.
func TestAnAdministratorsComputeModeIsScannedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, hw := &claims{}, &hardware{node: gpus(1)}
		hw.node.GPUs[0].ComputeMode = gpu.ComputeModeExclusiveProcess
		r := startBeside(t, hw, held, func(*inventory.Options) {})
		for _, step := range []struct {
			exclusive map[gpu.PCIAddress]bool
			want      gpu.ComputeMode
			most      int
		}{
			{nil, gpu.ComputeModeExclusiveProcess, 61},
			{map[gpu.PCIAddress]bool{address(0): true}, gpu.ComputeModeDefault, 6},
		} {
			held.set(state.Changes{Exclusive: step.exclusive})
			r.scan()
			before := r.looks()
			r.pass(time.Hour)
			if n := r.looks() - before; n > step.most || n < step.most-3 {
				t.Errorf("claims have set it: %t; %d scans in an hour, want %d", step.exclusive != nil, n, step.most)
			}
			if got := r.Snapshot().Node().GPUs[0].ComputeMode; got != step.want {
				t.Errorf("compute mode %s, want %s", got, step.want)
			}
		}
	})
}
