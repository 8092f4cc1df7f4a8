// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// State is the state of the agent at the time of a scrape.
type State struct {
	// ClaimsHeld is the number of claims that hold devices of this node.
	ClaimsHeld func() (int, error)
	// SeesPods reports whether the agent sees the processes of pods.
	SeesPods func() bool
	// Devices counts published devices by state: "healthy", "unhealthy",
	// "unreadable".
	Devices func() map[string]int
	// Phases returns 1 for the current phase of the node, and 0 for the others.
	Phases func() map[string]int
	// ConfigProblem reports whether the node's labels or configuration are not followed.
	ConfigProblem func() bool
	// Usage returns what claims use, and ShareSeconds which part of a GPU they have held
	// for how long.
	Usage        func() agentv1.Report
	ShareSeconds func() map[usage.Account]float64
	// GPUs returns the health of each GPU.
	GPUs func() []GPUHealth
	// Power returns the energy of claims and the clocks of each GPU.
	Power func() Power
}

// GPUHealth is the health of a GPU, with its gauges.
type GPUHealth struct {
	Device, UUID string
	// Cause is the value of the taint of an unhealthy GPU; empty if healthy.
	Cause string
	// Stranded is nil if it is not known.
	Stranded *catalog.Stranded
	gpu.Gauges
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

// series is a metric of the state.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil), prometheus.CounterValue}
}

func ofClaim(name, help string) series {
	return gauge("claim_"+name, help, "namespace", "claim", "pod", "container", "device", "uuid", "enforcement")
}

func ofGPU(name, help string) series { return gauge("device_"+name, help, "device", "uuid") }

// registry returns the metrics that are read from the state at the time of a scrape.
func (s State) registry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	for _, c := range []collector{
		held(s.ClaimsHeld),
		value("node_config_problem", "1 if the node's labels, its configuration or the names in --attributes are not followed; the log has the reason.", func() float64 { return number(s.ConfigProblem()) }),
		value("pod_processes_visible", "1 if the agent sees the processes of pods, so that a container that does not compute at the moment keeps its GPU after a forced deletion; 0 without hostPID.", func() float64 { return number(s.SeesPods()) }),
		counts(gauge("devices", "Devices of this node by state: healthy, unhealthy, or unreadable for GPUs that do not answer.", "state"), s.Devices),
		counts(gauge("node_phase", "1 for how far this node has come: Looking, NoDriver (the GPU driver is not loaded), NoGPUs or Published; 0 for the others.", "phase"), s.Phases),
		claims(s.Usage), gpus(s.GPUs), power(s.Power),
		byAccount(counter("share_seconds_total", "Parts of GPUs that claims have held, times seconds, by namespace and DeviceClass since the agent started.", "namespace", "class"), s.ShareSeconds),
	} {
		registry.MustRegister(c)
	}
	return registry
}

// sender sends a value of a metric with its labels to a scrape.
type sender func(metric series, value float64, labels ...string)

// collector reads metrics from the state. Its panic loses its own metrics only. The registry
// collects in goroutines, so a panic would end the agent, which prepares claims without metrics.
type collector func(send sender)

// Describe implements [prometheus.Collector]. The registry compares the metrics of a collector
// without descriptions when it collects them.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.Background().Error(fmt.Errorf("panic: %v", cause), "Cannot collect metrics", "stack", string(debug.Stack()))
		}
	}()
	c(func(metric series, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(metric.desc, metric.kind, value, labels...)
	})
}

func value(name, help string, read func() float64) collector {
	metric := gauge(name, help)
	return func(send sender) { send(metric, read()) }
}

// held counts claims. It has no value if they cannot be read.
func held(read func() (int, error)) collector {
	metric := gauge("claims_held", "Claims that hold devices of this node.")
	return func(send sender) {
		if n, err := read(); err == nil {
			send(metric, float64(n))
		}
	}
}

// counts has one value per label.
func counts(metric series, read func() map[string]int) collector {
	return func(send sender) {
		for label, n := range read() {
			send(metric, float64(n), label)
		}
	}
}

func byAccount(metric series, read func() map[usage.Account]float64) collector {
	return func(send sender) {
		for account, value := range read() {
			send(metric, value, account.Namespace, account.Class)
		}
	}
}

// claims collects what claims use, without the rows with a label that is not valid: the registry
// would refuse all metrics for it.
func claims(read func() agentv1.Report) collector {
	used := ofClaim("memory_used_bytes", "GPU memory that the processes of a container have, by claim and device; 0 without a container if nothing uses the device.")
	limit := ofClaim("memory_limit_bytes", "GPU memory above which the driver refuses allocations of a container; without a container, the memory of a GPU or MIG device that the claim has to itself.")
	promised := ofClaim("memory_promised_bytes", "GPU memory that is allocated to a claim.")
	compute := ofClaim("compute_promised_ratio", "Part of a GPU's multiprocessors that is allocated to a claim.")
	sm := ofClaim("sm_used_ratio", "Part of the time for which kernels of a container run on the multiprocessors of the whole GPU, by the driver's newest sample; not in MIG mode.")
	healthy := ofClaim("healthy", "1 if the GPU of a claim's device is healthy, and 0 if it has a fault.")
	omitted := gauge("claim_rows_omitted", "Claims' devices and containers beyond the limit of the metrics gpu_dra_claim_*.")
	invalid := gauge("claim_rows_invalid", "Claims' devices and containers that the metrics gpu_dra_claim_* lack because a name is not valid UTF-8.")
	return func(send sender) {
		report, refused := read(), 0
		for _, row := range report.Rows {
			labels := []string{row.Namespace, row.Claim, row.Pod, row.Container, row.Device, row.UUID, row.Enforcement}
			if slices.ContainsFunc(labels, func(label string) bool { return !utf8.ValidString(label) }) {
				refused++
				continue
			}
			sendKnown(send, used, row.MemoryUsedBytes, labels...)
			sendKnown(send, limit, row.MemoryLimitBytes, labels...)
			sendKnown(send, promised, row.MemoryPromisedBytes, labels...)
			sendKnown(send, compute, row.ComputePromised, labels...)
			sendKnown(send, sm, row.SMUsed, labels...)
			if row.Healthy != nil {
				send(healthy, number(*row.Healthy), labels...)
			}
		}
		send(omitted, float64(report.Omitted))
		send(invalid, float64(refused))
	}
}

// gpus collects the health and the gauges of GPUs, without the values that the driver does not
// report.
func gpus(read func() []GPUHealth) collector {
	healthy := gauge("device_healthy", "1 if a GPU is healthy; 0 if it has a fault, with the value of its taint as the cause.", "device", "uuid", "cause")
	utilization := ofGPU("utilization_ratio", "Part of the time for which kernels run on a GPU, by the driver's newest sample; not in MIG mode.")
	used := ofGPU("memory_used_bytes", "GPU memory in use, without the memory that the driver reserves.")
	memory := ofGPU("memory_bytes", "Memory of a GPU.")
	celsius := ofGPU("temperature_celsius", "Temperature of a GPU's chip.")
	watts := ofGPU("power_watts", "Power that a GPU draws.")
	memoryStranded := ofGPU("memory_stranded_bytes", "Free memory of a GPU in use that no further claim can get.")
	slicesStranded := ofGPU("slices_stranded", "Free compute slices of a GPU with MIG devices in use that no further MIG device can get.")
	return func(send sender) {
		for _, g := range read() {
			if s := g.Stranded; s != nil {
				send(memoryStranded, float64(s.Memory.Value()), g.Device, g.UUID)
				send(slicesStranded, float64(s.Slices), g.Device, g.UUID)
			}
			send(healthy, number(g.Cause == ""), g.Device, g.UUID, g.Cause)
			sendKnown(send, utilization, g.Utilization, g.Device, g.UUID)
			sendKnown(send, used, g.MemoryUsedBytes, g.Device, g.UUID)
			sendKnown(send, memory, g.MemoryBytes, g.Device, g.UUID)
			sendKnown(send, celsius, g.Celsius, g.Device, g.UUID)
			sendKnown(send, watts, g.Watts, g.Device, g.UUID)
		}
	}
}

// power collects the energy of claims and the clocks of GPUs.
func power(read func() Power) collector {
	energy := counter("claim_energy_joules_total", "Parts of the energy of GPUs that claims are charged for, by namespace and DeviceClass since the agent started. A share is charged for its part of the whole GPU's energy.", "namespace", "class")
	limited := gauge("device_clock_limited", "1 if the reason reduces the clocks of a GPU, and 0 if not.", "device", "uuid", "reason")
	return func(send sender) {
		now := read()
		byAccount(energy, func() map[usage.Account]float64 { return now.Joules })(send)
		for _, g := range now.GPUs {
			for reason, is := range g.Limited {
				send(limited, number(is), g.Device, g.UUID, reason)
			}
		}
	}
}

// sendKnown sends a value that is not nil.
func sendKnown[T uint64 | float64](send sender, metric series, value *T, labels ...string) {
	if value != nil {
		send(metric, float64(*value), labels...)
	}
}

// number returns 1 for true and 0 for false.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
