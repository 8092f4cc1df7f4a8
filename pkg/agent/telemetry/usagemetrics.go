// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
)

// GPUHealth is the health of a GPU, with its gauges.
type GPUHealth struct {
	Device, UUID string
	// Cause is the value of the taint of an unhealthy GPU; empty if healthy.
	Cause string
	Gauges
}

func usageDesc(name, help string) *prometheus.Desc {
	labels := []string{"namespace", "claim", "pod", "container", "device", "uuid", "enforcement"}
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "claim", name), help, labels, nil)
}

// The metrics of claims.
var (
	memoryUsedDesc      = usageDesc("memory_used_bytes", "GPU memory that the processes of a container have, by claim and device; 0 without a container if nothing uses the device.")
	memoryLimitDesc     = usageDesc("memory_limit_bytes", "GPU memory above which the driver refuses allocations of a container; without a container, the memory of a GPU or MIG device that the claim has to itself.")
	memoryPromisedDesc  = usageDesc("memory_promised_bytes", "GPU memory that is allocated to a claim.")
	computePromisedDesc = usageDesc("compute_promised_ratio", "Part of a GPU's multiprocessors that is allocated to a claim.")
	smUsedDesc          = usageDesc("sm_used_ratio", "Part of the time for which kernels of a container run on the multiprocessors of the whole GPU, by the driver's newest sample; not in MIG mode.")
	claimHealthyDesc    = usageDesc("healthy", "1 if the GPU of a claim's device is healthy, and 0 if it has a fault.")
	omittedDesc         = prometheus.NewDesc(namespace+"_claim_rows_omitted", "Claims' devices and containers beyond the limit of the metrics gpu_dra_claim_*.", nil, nil)
	invalidDesc         = prometheus.NewDesc(namespace+"_claim_rows_invalid", "Claims' devices and containers that the metrics gpu_dra_claim_* lack because a name is not valid UTF-8.", nil, nil)
	deviceHealthyDesc   = prometheus.NewDesc(namespace+"_device_healthy", "1 if a GPU is healthy; 0 if it has a fault, with the value of its taint as the cause.", []string{"device", "uuid", "cause"}, nil)
	shareSecondsDesc    = prometheus.NewDesc(namespace+"_share_seconds_total", "Parts of GPUs that claims have held, times seconds, by namespace and DeviceClass since the agent started.", []string{"namespace", "class"}, nil)
	energyDesc          = prometheus.NewDesc(namespace+"_claim_energy_joules_total", "Parts of the energy of GPUs that claims are charged for, by namespace and DeviceClass since the agent started. A share is charged for its part of the whole GPU's energy.", []string{"namespace", "class"}, nil)
	clockLimitedDesc    = prometheus.NewDesc(namespace+"_device_clock_limited", "1 if the reason reduces the clocks of a GPU, and 0 if not.", []string{"device", "uuid", "reason"}, nil)
)

// claimUsage reads the use of claims at the time of a scrape.
type claimUsage func() agentv1.Report

func (claimUsage) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{memoryUsedDesc, memoryLimitDesc, memoryPromisedDesc, computePromisedDesc, smUsedDesc, claimHealthyDesc, omittedDesc, invalidDesc} {
		ch <- desc
	}
}

func (c claimUsage) Collect(ch chan<- prometheus.Metric) {
	report, invalid := c(), 0
	for _, row := range report.Rows {
		metrics, err := rowMetrics(row)
		if err != nil {
			invalid++
			continue
		}
		for _, m := range metrics {
			ch <- m
		}
	}
	ch <- prometheus.MustNewConstMetric(omittedDesc, prometheus.GaugeValue, float64(report.Omitted))
	ch <- prometheus.MustNewConstMetric(invalidDesc, prometheus.GaugeValue, float64(invalid))
}

// rowMetrics returns the metrics of a row. It returns an error if a label is not valid: the
// registry would refuse all metrics for it.
func rowMetrics(row agentv1.Row) (metrics []prometheus.Metric, err error) {
	labels := []string{row.Namespace, row.Claim, row.Pod, row.Container, row.Device, row.UUID, row.Enforcement}
	gauge := func(desc *prometheus.Desc, value float64) {
		m, problem := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		metrics, err = append(metrics, m), errors.Join(err, problem)
	}
	bytes := func(desc *prometheus.Desc, value *uint64) {
		if value != nil {
			gauge(desc, float64(*value))
		}
	}
	ratio := func(desc *prometheus.Desc, value *float64) {
		if value != nil {
			gauge(desc, *value)
		}
	}
	bytes(memoryUsedDesc, row.MemoryUsedBytes)
	bytes(memoryLimitDesc, row.MemoryLimitBytes)
	bytes(memoryPromisedDesc, row.MemoryPromisedBytes)
	ratio(computePromisedDesc, row.ComputePromised)
	ratio(smUsedDesc, row.SMUsed)
	if row.Healthy != nil {
		gauge(claimHealthyDesc, number(*row.Healthy))
	}
	return metrics, err
}

// gpuHealth reads, at the time of a scrape, the health of the GPUs.
type gpuHealth func() []GPUHealth

func (gpuHealth) Describe(ch chan<- *prometheus.Desc) {
	ch <- deviceHealthyDesc
	describeGauges(ch)
}

func (g gpuHealth) Collect(ch chan<- prometheus.Metric) {
	for _, d := range g() {
		ch <- prometheus.MustNewConstMetric(deviceHealthyDesc, prometheus.GaugeValue, number(d.Cause == ""), d.Device, d.UUID, d.Cause)
		collectGauges(ch, d)
	}
}

// shareSeconds reads the time for which claims have held GPUs at the time of a scrape.
type shareSeconds func() map[usage.Account]float64

func (shareSeconds) Describe(ch chan<- *prometheus.Desc) { ch <- shareSecondsDesc }

func (s shareSeconds) Collect(ch chan<- prometheus.Metric) {
	for account, seconds := range s() {
		ch <- prometheus.MustNewConstMetric(shareSecondsDesc, prometheus.CounterValue, seconds, account.Namespace, account.Class)
	}
}

// Power is the state of power of the GPUs at the time of a scrape.
type Power struct {
	// Joules are the parts of the GPUs' energy that are charged to claims.
	Joules map[usage.Account]float64
	GPUs   []GPUClocks
}

// GPUClocks says which reasons reduce the clocks of a GPU.
type GPUClocks struct {
	Device, UUID string
	// Limited has all reasons that the driver reports.
	Limited map[string]bool
}

// power reads, at the time of a scrape, the energy and the clocks of the GPUs.
type power func() Power

func (power) Describe(ch chan<- *prometheus.Desc) {
	ch <- energyDesc
	ch <- clockLimitedDesc
}

func (p power) Collect(ch chan<- prometheus.Metric) {
	now := p()
	for account, joules := range now.Joules {
		ch <- prometheus.MustNewConstMetric(energyDesc, prometheus.CounterValue, joules, account.Namespace, account.Class)
	}
	for _, g := range now.GPUs {
		for reason, limited := range g.Limited {
			ch <- prometheus.MustNewConstMetric(clockLimitedDesc, prometheus.GaugeValue, number(limited), g.Device, g.UUID, reason)
		}
	}
}

// number returns 1 for true and 0 for false.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
