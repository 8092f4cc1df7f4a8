// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/component-base/version"
)

const namespace = "gpu_dra"

// Values of the label "outcome".
const (
	outcomeOK    = "ok"
	outcomeError = "error"
)

// Metrics are the events that the agent counts and measures, in a registry of their
// own. They are the Observer of the packages claim, kubelet, reconcile and report. The zero value is not usable; see
// [NewMetrics].
type Metrics struct {
	registry *prometheus.Registry

	prepare, unprepare *prometheus.HistogramVec
	step               *prometheus.HistogramVec
	refusals           *prometheus.CounterVec
	statusWrites       *prometheus.CounterVec
	publishErrors      *prometheus.CounterVec
	heldBack           prometheus.Gauge
	otherDrivers       prometheus.Gauge
	foreignDevices     prometheus.Gauge
	foreignProcesses   *prometheus.GaugeVec
	unlimited          *prometheus.GaugeVec
	disturbed          *prometheus.GaugeVec
	statusQueue        prometheus.Gauge
	faults             *prometheus.CounterVec
	// faultNamespaces are the namespaces in faults.
	faultNamespaces namespaces
}

// NewMetrics registers the metrics of the agent under the prefix gpu_dra_, except for
// those of its [State]. It also registers the usual metrics of the Go runtime and the
// process. refusals are the reasons for which a prepare may fail.
func NewMetrics(refusals []string) *Metrics {
	// A whole GPU takes a millisecond or two. The first MPS share or a MIG mode
	// change can take minutes.
	buckets := []float64{.0005, .001, .0015, .002, .003, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	}
	byDevice := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{"device"})
	}
	m := &Metrics{
		registry:         prometheus.NewRegistry(),
		prepare:          histogram("prepare_duration_seconds", "Time to prepare one claim, by the kind of its devices (gpu, gpu-share, mig, mig-share, timeslice, seat, monitor, or unknown) and the outcome.", "kind", "outcome"),
		unprepare:        histogram("unprepare_duration_seconds", "Time to unprepare one claim, by the outcome.", "outcome"),
		step:             histogram("step_duration_seconds", "Time of one step of a claim's plan, by step, direction (do, undo) and outcome.", "step", "direction", "outcome"),
		statusWrites:     counter("status_writes_total", "Writes of a claim's status.devices, by outcome; dropped ones were for claims that are gone or deallocated.", "outcome"),
		publishErrors:    counter("slice_publish_errors_total", "Failures to publish ResourceSlices, by reason.", "reason"),
		refusals:         counter("prepare_refusals_total", "Calls to prepare a claim that failed, by reason.", "reason"),
		heldBack:         gauge("reconcile_held_back", "Claims that the API says do not need their devices any more and that keep them, until another round confirms it or their processes have ended."),
		otherDrivers:     gauge("other_drivers", "Other drivers that are registered with the kubelet under the name of this one. The kubelet calls only the last one."),
		foreignDevices:   gauge("foreign_devices", "Devices in the node's ResourceSlices that another driver of this name has published."),
		foreignProcesses: byDevice("foreign_processes", "Processes of pods without a claim on a device that claims hold, by device, when the claims were last compared with the API."),
		unlimited:        byDevice("unlimited_containers", "Containers that compute without the memory limit of their claim, by device, when limits were last checked. Absent for a device on which they are unknown."),
		disturbed:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "disturbed_shares", Help: "Shares whose programs have lost the MPS daemon, lack it or wait for another user's, by cause, when the claims were last compared with the API."}, []string{"cause"}),
		faults:           counter("program_faults_total", "XIDs that ended programs of a namespace, by XID, by whose program made the fault (cause: own, other, unknown), and by namespace; empty for namespaces beyond the first 200.", "xid", "cause", "namespace"),
		statusQueue:      gauge("status_queue_depth", "Claims whose status.devices waits to be written."),
	}
	for _, reason := range refusals {
		m.refusals.WithLabelValues(reason)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the labels identify the running build.",
		ConstLabels: prometheus.Labels{"version": version.Get().GitVersion, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.prepare, m.unprepare, m.step, m.refusals, m.statusWrites, m.publishErrors, m.heldBack, m.otherDrivers, m.foreignDevices, m.foreignProcesses, m.unlimited, m.disturbed, m.statusQueue, m.faults,
		build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Prepared implements kubelet.Observer.
func (m *Metrics) Prepared(kinds string, took time.Duration, refusal string) {
	result := outcomeOK
	if refusal != "" {
		result = outcomeError
		m.refusals.WithLabelValues(refusal).Inc()
	}
	m.prepare.WithLabelValues(kinds, result).Observe(took.Seconds())
}

// Unprepared implements kubelet.Observer and reconcile.Observer.
func (m *Metrics) Unprepared(took time.Duration, err error) {
	m.unprepare.WithLabelValues(outcome(err)).Observe(took.Seconds())
}

// StatusWritten implements report.Observer.
func (m *Metrics) StatusWritten(outcome string) { m.statusWrites.WithLabelValues(outcome).Inc() }

// PublishFailed implements kubelet.Observer.
func (m *Metrics) PublishFailed(reason string) { m.publishErrors.WithLabelValues(reason).Inc() }

// ProgramFault implements report.Observer.
func (m *Metrics) ProgramFault(xid uint64, blame, namespace string) {
	m.faults.WithLabelValues(strconv.FormatUint(xid, 10), blame, m.faultNamespaces.label(namespace)).Inc()
}

// maxNamespaces bounds the values of a label "namespace" of counters, which are kept until the
// agent ends.
const maxNamespaces = 200

// namespaces are the values of a label.
type namespaces struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label returns the name of a namespace, or "" if there are too many others.
func (n *namespaces) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	if !n.seen[name] && len(n.seen) == maxNamespaces {
		return ""
	}
	n.seen[name] = true
	return name
}

// StatusQueue implements report.Observer.
func (m *Metrics) StatusQueue(claims int) { m.statusQueue.Set(float64(claims)) }

// HeldBack implements reconcile.Observer.
func (m *Metrics) HeldBack(claims int) { m.heldBack.Set(float64(claims)) }

// OtherDrivers implements place.Observer.
func (m *Metrics) OtherDrivers(drivers int) { m.otherDrivers.Set(float64(drivers)) }

// ForeignDevices implements reconcile.Observer.
func (m *Metrics) ForeignDevices(devices int) { m.foreignDevices.Set(float64(devices)) }

// ForeignProcesses implements reconcile.Observer.
func (m *Metrics) ForeignProcesses(byDevice map[string]int) { replace(m.foreignProcesses, byDevice) }

// UnlimitedContainers implements reconcile.Observer.
func (m *Metrics) UnlimitedContainers(byDevice map[string]int) { replace(m.unlimited, byDevice) }

// DisturbedShares implements report.Observer.
func (m *Metrics) DisturbedShares(byCause map[string]int) { replace(m.disturbed, byCause) }

// replace replaces all values of a metric with one label.
func replace(gauges *prometheus.GaugeVec, values map[string]int) {
	gauges.Reset()
	for label, value := range values {
		gauges.WithLabelValues(label).Set(float64(value))
	}
}

// StepDone implements claim.Observer.
func (m *Metrics) StepDone(step string, undo bool, took time.Duration, err error) {
	direction := "do"
	if undo {
		direction = "undo"
	}
	m.step.WithLabelValues(step, direction, outcome(err)).Observe(took.Seconds())
}

func outcome(err error) string {
	if err != nil {
		return outcomeError
	}
	return outcomeOK
}
