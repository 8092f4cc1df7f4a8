// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// contested are the devices that new claims must not get, although the cluster counts
// them as free. A device stops to be contested when no claim holds it any more.
type contested struct {
	held func(ctx context.Context) ([]claim.Held, error)

	mu sync.Mutex
	// unneeded are the claims that the API did not need when it last answered, and refused
	// the claims that could not be unprepared because of their processes.
	unneeded, refused map[types.UID]bool
	// strangers are the devices on which a pod without a claim computed in the last round.
	strangers map[kind.Name]bool
	last      catalog.InUse
}

func newContested(held func(ctx context.Context) ([]claim.Held, error)) *contested {
	return &contested{held: held, unneeded: map[types.UID]bool{}, refused: map[types.UID]bool{}}
}

// set replaces the findings of the last round. The finding about a claim that is in
// neither list stays.
func (c *contested) set(needed, unneeded []types.UID, strangers []claim.Stranger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range needed {
		delete(c.unneeded, uid)
	}
	c.strangers = map[kind.Name]bool{}
	for _, uid := range unneeded {
		c.unneeded[uid] = true
	}
	for _, s := range strangers {
		c.strangers[s.Device] = true
	}
}

// setRefused sets whether a claim could not be unprepared because of its processes.
func (c *contested) setRefused(uid types.UID, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused {
		c.refused[uid] = true
	} else {
		delete(c.refused, uid)
	}
}

// devices returns the contested devices, and the last ones if the claims cannot be read.
func (c *contested) devices(ctx context.Context) catalog.InUse {
	held, err := c.held(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the contested devices, keeping the last ones")
		return c.last
	}
	now := catalog.InUse{}
	for _, marks := range []map[types.UID]bool{c.unneeded, c.refused} {
		maps.DeleteFunc(marks, func(uid types.UID, _ bool) bool {
			return !slices.ContainsFunc(held, func(h claim.Held) bool { return h.UID == uid })
		})
	}
	for _, h := range held {
		isUnneeded := c.unneeded[h.UID] || c.refused[h.UID]
		for _, d := range h.Devices {
			switch {
			case !d.Name.OnGPU():
			case isUnneeded:
				now[d.Name] = v1alpha1.InUseTaintUnneededClaim
			case c.strangers[d.Name] && now[d.Name] == "":
				now[d.Name] = v1alpha1.InUseTaintForeignProcess
			}
		}
	}
	c.last = now
	return now
}
