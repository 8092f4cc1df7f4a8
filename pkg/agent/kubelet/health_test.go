// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// healthSource is a fake of Devices whose health a test changes.
type healthSource struct {
	health  chan []Health // contains the current health
	changed chan struct{}
}

func newHealthSource(h ...Health) *healthSource {
	s := &healthSource{health: make(chan []Health, 1), changed: make(chan struct{}, 1)}
	s.health <- h
	return s
}

func (s *healthSource) set(h ...Health) {
	<-s.health
	s.health <- h
	s.changed <- struct{}{}
}

func (s *healthSource) Health() []Health {
	h := <-s.health
	s.health <- h
	return h
}

func (s *healthSource) Subscribe() (<-chan struct{}, func()) { return s.changed, func() {} }

func TestHealthIsSentOnEveryChangeAndBeforeItExpires(t *testing.T) {
	clock := testclock.NewFakeClock(agenttest.Now())
	source := newHealthSource(Health{Device: "gpu-1b-00", Healthy: true}, Health{Device: "gpu-43-00", Healthy: true})
	p := &Plugin{Options: Options{NodeName: "node", Devices: source, Clock: clock}}
	ctx, cancel := context.WithCancel(t.Context())
	reports := make(chan kubeletplugin.DeviceHealthReport)
	ended := make(chan error, 1)
	go func() { ended <- p.WatchHealthStatus(ctx, reports) }()

	device := func(name string, health kubeletplugin.HealthStatus, message string) kubeletplugin.DeviceHealth {
		return kubeletplugin.DeviceHealth{PoolName: "node", DeviceName: name, Health: health, Message: message, LastUpdated: clock.Now()}
	}
	expect := func(step string, want ...kubeletplugin.DeviceHealth) {
		t.Helper()
		require.Same(t, step, want, (<-reports).Devices)
	}
	expect("first report", device("gpu-1b-00", kubeletplugin.HealthStatusHealthy, ""), device("gpu-43-00", kubeletplugin.HealthStatusHealthy, ""))

	source.set(Health{Device: "gpu-1b-00", Message: "XID 79"}, Health{Device: "gpu-43-00", Healthy: true})
	lost := func() []kubeletplugin.DeviceHealth {
		return []kubeletplugin.DeviceHealth{device("gpu-1b-00", kubeletplugin.HealthStatusUnhealthy, "XID 79"), device("gpu-43-00", kubeletplugin.HealthStatusHealthy, "")}
	}
	expect("after a change", lost()...)

	// The kubelet forgets a report after 30 s.
	clock.Step(healthInterval)
	if healthInterval >= 30*time.Second/2 {
		t.Errorf("sent every %v, which leaves no room for a late one", healthInterval)
	}
	expect("nothing changed", lost()...)

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("WatchHealthStatus = %v, want nil when the kubelet leaves", err)
	}
}
