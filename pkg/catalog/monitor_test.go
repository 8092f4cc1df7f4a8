// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// watched offers all GPUs together to monitoring agents too.
func watched(c catalog.Inputs) catalog.Inputs {
	c.Offer += ",monitor"
	return c
}

func TestWhereTheMonitorDeviceIs(t *testing.T) {
	cut := h100(t, 2)
	cut.GPUs[0].MIG.Enabled, cut.GPUs[1].ComputeMode = true, gpu.ComputeModeProhibited
	exclusive, noCounters := watched(sharing()), watched(slicing(sharing()))
	exclusive.Exclusive, noCounters.NoCounters = true, true
	for name, tc := range map[string]struct {
		catalog catalog.Inputs
		node    gpu.Node
		held    catalog.Held
		want    string
	}{
		"last":                           {watched(slicing(sharing())), h100(t, 2), nil, "1b-00 43-00 43-00-ts 1b-00-ts node-gpus\n{1b-00 1} {43-00 1}"},
		"without a taint":                {watched(sharing()), cut, nil, "1b-00!mig-mode 43-00!compute-mode node-gpus"},
		"not offered":                    {sharing(), h100(t, 1), nil, "1b-00"},
		"not offered any more, and held": {sharing(), h100(t, 1), catalog.Held{kindtest.Name("node-gpus"): false}, "1b-00 node-gpus"},
		"without GPUs there is none":     {watched(sharing()), h100(t, 0), nil, ""},
		"on a cluster without sharing":   {exclusive, h100(t, 1), nil, "1b-00 node-gpus"},
		"on a cluster without counters":  {noCounters, h100(t, 1), nil, "1b-00 node-gpus"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "slices", tc.want, inSlices(tc.catalog, tc.node, tc.held))
		})
	}
}

// TestTheSchedulerAllocatesMonitoring checks that a monitoring agent fits on a node
// however busy its GPUs are. It must keep no other claim from a GPU.
func TestTheSchedulerAllocatesMonitoring(t *testing.T) {
	monitoring := claim("class=monitor")
	monitoring.Requests[0].Exactly.AdminAccess = ptr(true)
	full := h100(t, 1)
	for name, c := range map[string]catalog.Inputs{
		"with shares": watched(sharing()), "with counters": watched(slicing(sharing())),
	} {
		t.Run(name, func(t *testing.T) {
			node := schedulable(t, c, full, catalog.Conditions{full.GPUs[0].Address: {Cause: "xid-79"}})
			want := "a node-gpus\nb node-gpus\nc does not fit"
			require.Same(t, "on an unhealthy node", want, allocateAll(t, node, []resourceapi.DeviceClaim{monitoring, monitoring, claim("")}))
			node = schedulable(t, c, full, nil)
			want = "a 1b-00 81559Mi\nb does not fit\nc node-gpus\nd node-gpus"
			require.Same(t, "on a full node", want, allocateAll(t, node, []resourceapi.DeviceClaim{claim(""), claim(""), monitoring, monitoring}))
		})
	}
	// There is one such device, so a count of two does not fit.
	twice := claim("class=monitor count=2")
	twice.Requests[0].Exactly.AdminAccess = ptr(true)
	node := schedulable(t, watched(sharing()), full, nil)
	if _, err := node.Allocate(t.Context(), "twice", twice); err == nil {
		t.Errorf("allocated: %s; want %v", node, allocator.ErrNoFit)
	}
}
