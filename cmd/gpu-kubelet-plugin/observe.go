// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
)

// scanStuckAfter is when a scan of the GPUs hangs: each call of a scan has a
// deadline of its own.
const scanStuckAfter = 5 * time.Minute

// handler answers what an administrator asks of the agent.
func (a *agent) handler() http.Handler {
	serving := plugin.Check{Name: "serving", Err: a.isServing}
	return plugin.Handler(a.metrics, []plugin.Check{
		serving,
		{Name: "folders", Err: a.hasFolders},
		{Name: "sockets", Err: a.answers},
		{Name: "reconciliation", Err: a.reconciles},
		{Name: "scan", Err: a.scan.Err},
	}, []plugin.Check{
		serving,
		{Name: "gpus", Err: a.hasLooked},
		{Name: "registered", Err: a.isRegistered},
	})
}

// isServing: claims of an earlier process are at rest and the sockets are open.
func (a *agent) isServing() error {
	select {
	case <-a.served:
		return nil
	default:
		return errors.New("bringing claims of an earlier process to rest")
	}
}

// hasLooked: the GPUs were looked at, and what there is was published. A node
// without any is complete as well, and so is one without a driver: an agent that
// waits for it must not keep those of other nodes from being updated. But where
// claims are prepared there was a driver, and an agent that does not find it must
// not replace those of other nodes that do.
func (a *agent) hasLooked() error {
	s := a.controller.State()
	if s.Phase == controller.Looking || s.Unpublished {
		return fmt.Errorf("%s", s)
	}
	if s.Phase != controller.NoDriver {
		return nil
	}
	if held := a.claimsHeld(); held > 0 {
		return fmt.Errorf("%s; and %d claims are prepared on this node: is --driver-root the right one?", s, held)
	}
	return nil
}

func (a *agent) isRegistered() error {
	if err := a.isServing(); err != nil {
		return err
	}
	return a.plugin.Registered()
}

// isStarted reports whether the kubelet is served, before which the plugin is not
// there.
func (a *agent) isStarted() bool { return a.isServing() == nil }

// hasFolders makes the CDI directory again if it is gone, and has specs written
// again that are missing. It returns an error if a folder cannot be made again, or
// if the agent's own was replaced, which holds the records.
func (a *agent) hasFolders() error {
	if !a.isStarted() {
		return nil
	}
	changed, err := a.cdiFolder.Check()
	if err = errors.Join(err, a.home.Check()); err != nil {
		return err
	}
	lost, err := a.specLost(context.Background())
	if changed || lost {
		klog.Background().Info("CDI specs are gone, writing those of prepared claims again", "folder", a.cdiDir)
		a.plugin.Repair()
	}
	return err
}

// specLost reports whether a prepared claim has no CDI spec.
func (a *agent) specLost(ctx context.Context) (bool, error) {
	held, err := a.claims.Held(ctx)
	if err != nil {
		return false, err
	}
	specs, err := a.claims.CDI.List(ctx)
	return slices.ContainsFunc(held, func(h claim.Held) bool {
		return h.Phase == claim.Prepared && !slices.Contains(specs, h.UID)
	}), err
}

// answers returns an error unless the kubelet could reach the agent.
func (a *agent) answers() error {
	if !a.isStarted() {
		return nil
	}
	return a.plugin.Answers()
}

func (a *agent) reconciles() error {
	if !a.isStarted() {
		return nil
	}
	return a.plugin.Turning()
}

// scanned watches how long the scans of the hardware take.
type scanned struct {
	*hardware
	scan *plugin.Activity
}

// Snapshot implements [inventory.Hardware].
func (s scanned) Snapshot(ctx context.Context) (gpu.Node, error) {
	defer s.scan.Begin()()
	return s.hardware.Snapshot(ctx)
}

func (a *agent) claimsHeld() int {
	held, err := a.claims.Held(context.Background())
	if err != nil {
		return 0
	}
	return len(held)
}

// devicesByState counts for the metrics. A GPU that does not answer is unreadable
// and, if it ever did and so is published, unhealthy as well.
func (a *agent) devicesByState() map[string]int {
	states := map[string]int{"healthy": 0, "unhealthy": 0, "unreadable": a.inventory.View().Unreadable}
	for _, d := range a.controller.Devices() {
		if d.Healthy {
			states["healthy"]++
		} else {
			states["unhealthy"]++
		}
	}
	return states
}

// phases has 1 for the one that the node is in, and 0 for the others.
func (a *agent) phases() map[string]int {
	now, phases := a.controller.State().Phase, map[string]int{}
	for _, p := range controller.Phases() {
		phases[string(p)] = 0
		if p == now {
			phases[string(p)] = 1
		}
	}
	return phases
}

// health is what the plugin tells the kubelet of the devices.
type health struct{ *controller.Controller }

// Health implements [plugin.Devices].
func (h health) Health() []plugin.Health {
	var all []plugin.Health
	for _, d := range h.Devices() {
		all = append(all, plugin.Health{Device: d.Name, Healthy: d.Healthy, Message: d.Message})
	}
	return all
}
