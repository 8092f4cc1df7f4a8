// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// healthInterval is the time between reports of the health of all devices. The kubelet
// sets a device's health to unknown after 30 s without a report.
const healthInterval = 10 * time.Second

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. It sends a report of all
// devices at the start, after every change and every 10 seconds.
func (p *Plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	changed, unsubscribe := p.Devices.Subscribe()
	defer unsubscribe()
	ticker := p.Clock.NewTicker(healthInterval)
	defer ticker.Stop()
	for {
		select {
		case reports <- p.health():
		case <-ctx.Done():
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Plugin) health() kubeletplugin.DeviceHealthReport {
	var report kubeletplugin.DeviceHealthReport
	now := p.Clock.Now()
	for _, d := range p.Devices.Health() {
		health := kubeletplugin.HealthStatusHealthy
		if !d.Healthy {
			health = kubeletplugin.HealthStatusUnhealthy
		}
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
			PoolName: p.NodeName, DeviceName: d.Device,
			Health: health, Message: d.Message, LastUpdated: now,
		})
	}
	return report
}
