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
		{Name: "gpus", Err: a.hasGPUs},
		{Name: "published", Err: a.hasPublished},
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

// hasGPUs: the GPUs were looked at. A node without any is complete as well.
func (a *agent) hasGPUs() error {
	switch s := a.controller.State(); s.Phase {
	case controller.Looking, controller.NoDriver:
		return fmt.Errorf("%s", s)
	default:
		return nil
	}
}

func (a *agent) hasPublished() error {
	switch s := a.controller.State(); s.Phase {
	case controller.Published, controller.NoGPUs:
		return nil
	default:
		return fmt.Errorf("%s", s)
	}
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
