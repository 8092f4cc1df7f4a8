// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestAllGPUsTogetherAreWellAsLongAsOneAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hw := &hardware{node: gpus(2)}
		c := startIn(t, hw, catalog.Held{}, nil)
		monitor := func() (healthy, published bool) {
			for _, d := range c.Devices() {
				if d.Name.String() == "node-gpus" {
					return d.Healthy, true
				}
			}
			return false, false
		}
		if _, published := monitor(); published {
			t.Error("it is there although the node does not offer it")
		}
		c.label("share.monitor")
		for silent, want := range []string{"GPU-0 GPU-1", "GPU-1", ""} {
			if silent > 0 {
				hw.silence(0, gpu.ErrLost)
				c.Inventory.RequestScan()
				synctest.Wait()
			}
			var uuids []string
			all, err := c.GPUs(t.Context())
			for _, g := range all {
				uuids = append(uuids, g.UUID)
			}
			if got := strings.Join(uuids, " "); got != want || (err != nil) != (want == "") {
				t.Errorf("with %d GPUs silent %q answer (%v), want %q", silent, got, err, want)
			}
			if healthy, published := monitor(); !published || healthy != (want != "") {
				t.Errorf("with %d GPUs silent: published %v, healthy %v", silent, published, healthy)
			}
		}
		c.hold(catalog.Held{kindtest.Name("node-gpus"): false})
		c.label("share")
		if _, published := monitor(); !published {
			t.Error("it goes although a claim holds it")
		}
		c.hold(catalog.Held{})
		if _, published := monitor(); published {
			t.Error("it stays although no claim holds it and the node does not offer it")
		}
	})
}
