// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Classes lists DeviceClasses for the allocator.
type Classes []*resourceapi.DeviceClass

// List returns all classes.
func (c Classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

// Get returns the named class. The error is the one of the API server.
func (c Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class := First(c, func(class *resourceapi.DeviceClass) bool { return class.Name == name }); class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// attempt is the input of the allocator for one node.
type attempt struct {
	node    string
	slices  []*resourceapi.ResourceSlice
	state   structured.AllocatedState
	classes Classes
	claims  []*resourceapi.ResourceClaim
}

// newAttempt returns the input for the claims on the current node.
func (f *Fleet) newAttempt(node string, claims ...*resourceapi.ResourceClaim) attempt {
	all := f.slicesFor(node)
	return attempt{node: node, slices: all, state: f.stateOf(all), classes: f.classes, claims: claims}
}

// allocate returns an allocation for each claim; nil if they do not fit on the node together.
// The error wraps [gpu.ErrTimeout] if the search does not end, and [gpu.ErrInvalid] if the
// allocator refuses the claims or slices.
func (f *Fleet) allocate(ctx context.Context, q attempt) ([]resourceapi.AllocationResult, error) {
	limit := cmp.Or(f.SearchLimit, time.Second)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, f.Features, q.state, q.classes, q.slices, f.cel)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, f.nodeOf(q.node), q.claims)
	switch {
	case err == nil:
		return results, nil
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("search for devices on node %s: %w after %s", q.node, gpu.ErrTimeout, limit)
	default:
		return nil, fmt.Errorf("search for devices on node %s: %w: %w", q.node, gpu.ErrInvalid, err)
	}
}

// Fit returns an allocation on a node for each of the claims, which have none yet. It
// returns nil if they do not fit there together. The error wraps [gpu.ErrTimeout] if the
// search does not end, and [gpu.ErrInvalid] if the allocator refuses the claims.
func (f *Fleet) Fit(ctx context.Context, node string, claims ...*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
	return f.allocate(ctx, f.newAttempt(node, claims...))
}
