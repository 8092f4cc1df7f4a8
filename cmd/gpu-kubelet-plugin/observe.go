package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
)

// handler answers what an administrator asks of the agent.
func (a *agent) handler() http.Handler {
	serving := plugin.Check{Name: "serving", Err: a.isServing}
	return plugin.Handler(a.metrics, []plugin.Check{serving}, []plugin.Check{
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
	states := map[string]int{"healthy": 0, "unhealthy": 0, "unreadable": int(a.hw.unreadable.Load())}
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
