// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// destroy destroys a partition. It succeeds if there is none. If it is in use, the error names
// processes that have it open: NVML lists only those with a context, and monitors have none.
func (k keptPartitions) destroy(ctx context.Context, name kind.Name, others *journal.Others) error {
	err := k.MIG.DestroyPartition(ctx, name.Address, name.Profile, name.Start)
	switch {
	case errors.Is(err, gpu.ErrNotFound):
		return nil
	case !errors.Is(err, gpu.ErrInUse):
		return err
	}
	text, details := k.openers(ctx, name, others)
	return plan.Refuse(fmt.Errorf("%w%s; see %s", err, text, gpu.Page("docs/admin/mig.md#a-mig-device-that-cannot-be-destroyed")), details...)
}

// openers describes the processes that have a partition open. If none is known, it describes the
// processes that have the GPU open. It omits MPS and the pods of other claims, which use other
// partitions.
func (k keptPartitions) openers(ctx context.Context, name kind.Name, others *journal.Others) (text string, details []any) {
	g, err := k.inventory.GPU(ctx, name.Address)
	mig, unread := k.MIG.MIG(ctx, name.Address)
	if err := errors.Join(err, unread); err != nil {
		return "", []any{"openersErr", err}
	}
	var nodes []string
	for _, p := range plan.PartitionsAt(mig, name) {
		more, unread := k.CapabilityNodes(g.GPU, p.GPUInstanceID, p.ComputeInstanceID)
		nodes, err = append(nodes, more...), errors.Join(err, unread)
	}
	subject := "it"
	open, unread := k.Openers(nodes)
	if err = errors.Join(err, unread); len(open) == 0 {
		subject = "the GPU"
		holders, unlisted := others.List(ctx)
		open, unread = k.Openers([]string{nodeOf(g.GPU)})
		err = errors.Join(err, unlisted, unread)
		maps.DeleteFunc(open, func(_ int, t gpu.Task) bool {
			return t.IsMPS() || slices.ContainsFunc(holders, func(h journal.Holder) bool { return slices.Contains(h.Pods, types.UID(t.PodUID)) })
		})
	}
	if len(open) == 0 {
		return "", []any{"openersErr", err}
	}
	const most = 3
	var named []string
	for i, pid := range slices.Sorted(maps.Keys(open)) {
		if i == most {
			named = append(named, fmt.Sprintf("%d more", len(open)-most))
			break
		}
		named = append(named, open[pid].Describe(pid))
	}
	return fmt.Sprintf(": %s is open in %s", subject, strings.Join(named, ", ")), []any{"openers", open}
}
