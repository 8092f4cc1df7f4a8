// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Gauges are the use, the temperature and the power of a GPU. A value that the driver does
// not report is nil.
type Gauges struct {
	// Utilization is the part of the time, 0 to 1, for which kernels ran on the GPU.
	Utilization     *float64
	MemoryUsedBytes *uint64
	MemoryBytes     *uint64
	Celsius         *float64
	Watts           *float64
}

func gaugeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "device", name), help, []string{"device", "uuid"}, nil)
}

// gauges are the metrics of a GPU's gauges. Each value is nil if the driver does not report it.
var gauges = []struct {
	desc  *prometheus.Desc
	value func(Gauges) *float64
}{
	{gaugeDesc("utilization_ratio", "Part of the time for which kernels run on a GPU, by the driver's newest sample; not in MIG mode."), func(g Gauges) *float64 { return g.Utilization }},
	{gaugeDesc("memory_used_bytes", "GPU memory in use, without the memory that the driver reserves."), func(g Gauges) *float64 { return float(g.MemoryUsedBytes) }},
	{gaugeDesc("memory_bytes", "Memory of a GPU."), func(g Gauges) *float64 { return float(g.MemoryBytes) }},
	{gaugeDesc("temperature_celsius", "Temperature of a GPU's chip."), func(g Gauges) *float64 { return g.Celsius }},
	{gaugeDesc("power_watts", "Power that a GPU draws."), func(g Gauges) *float64 { return g.Watts }},
}

func describeGauges(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
}

// collectGauges sends the gauges of a GPU. It omits the values that the driver does not report.
func collectGauges(ch chan<- prometheus.Metric, d GPUHealth) {
	for _, g := range gauges {
		if value := g.value(d.Gauges); value != nil {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, *value, d.Device, d.UUID)
		}
	}
}

// float returns a number of bytes as Prometheus has it; nil for nil.
func float(bytes *uint64) *float64 {
	if bytes == nil {
		return nil
	}
	return new(float64(*bytes))
}
