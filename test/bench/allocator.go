// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/allocatortest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// measureAllocator measures the scheduler's cost of a claim, in this process and
// without a cluster.
func (b *bench) measureAllocator(ctx context.Context, node gpu.Node, f *figures) error {
	classes, err := allocatortest.ReadClasses(b.classes)
	if err != nil {
		return err
	}
	progress("allocating every kind of claim %d times, on our slices and on naive ones", b.rounds)
	ours := catalog.Inputs{Settings: catalog.Settings{Pool: b.node}, NodeConfig: catalog.NodeConfig{Offer: "share,mig"}}
	f.Allocator, err = allocatortest.Compare(ctx, ours, node, b.rounds, classes...)
	return err
}
