// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
)

// ModeUnknown is the mode of a GPU that no node publishes.
const ModeUnknown fleet.Mode = "unknown"

// ModeNotYours is the mode of a GPU that no claim holds which the user may read. Others may.
const ModeNotYours fleet.Mode = "not yours"

// HealthState is the health of a GPU in a word.
type HealthState string

// The states of health.
const (
	HealthOK      HealthState = "ok"
	HealthTainted HealthState = "tainted"
	// HealthUnknown is the state of a GPU whose agent does not run: nothing is known
	// since the last publication.
	HealthUnknown HealthState = "unknown"
	// HealthNotPublished is the state of a GPU that is in no slice.
	HealthNotPublished HealthState = "not-published"
)

// Health is the known health of a GPU, in JSON and YAML.
type Health struct {
	State HealthState `json:"state"`
	// Reasons are the problems of the agent, and then the taints that keep pods away.
	Reasons []Reason `json:"reasons,omitempty"`
	// Published is the time of the last change of the node's slices. It is set if the
	// state is unknown.
	Published *metav1.Time `json:"published,omitempty"`
}

// Reason is a reason why the health of a GPU is not ok.
type Reason struct {
	// Code is the value of a taint, such as "xid-79", or "no-agent", "agent-not-ready"
	// or "node-not-ready".
	Code string `json:"code"`
	// Since is nil if it is not known.
	Since *metav1.Time `json:"since,omitempty"`
}

// The codes of reasons that are not taints.
const (
	CodeNoAgent       = "no-agent"
	CodeAgentNotReady = "agent-not-ready"
	CodeNodeNotReady  = "node-not-ready"
	// CodeCordonedInPart is the code of a GPU with devices that its cordon does not cover yet.
	CodeCordonedInPart = "cordoned-in-part"
)

// Text returns the health in words, with ages, such as "xid-79, 12m".
func (h Health) Text(now time.Time) string {
	heading := map[HealthState]string{HealthOK: string(HealthOK), HealthNotPublished: "not published", HealthUnknown: "unknown"}[h.State]
	var parts []string
	for _, r := range h.Reasons {
		words, since := r.words(now)
		parts = append(parts, words+since)
	}
	if h.State == HealthUnknown && h.Published != nil {
		parts = append(parts, "published "+fleet.Age(h.Published.Time, now)+" ago")
	}
	text := strings.Join(parts, "; ")
	if heading != "" && text != "" {
		heading += ": "
	}
	return heading + text
}

// words returns the reason in words, and its age as what follows them. The age is "" if it is not
// known.
func (r Reason) words(now time.Time) (words, since string) {
	switch r.Code {
	case CodeCordonedInPart:
		return strings.ReplaceAll(r.Code, "-", " "), ""
	case CodeNoAgent, CodeAgentNotReady, CodeNodeNotReady:
		words = strings.ReplaceAll(r.Code, "-", " ")
		if r.Since != nil {
			since = " since " + fleet.Age(r.Since.Time, now) + " ago"
		}
		return words, since
	}
	if r.Since != nil {
		since = ", " + fleet.Age(r.Since.Time, now)
	}
	return r.Code, since
}

// healthOf returns the health of a GPU as its node publishes it.
func healthOf(g fleet.GPU) Health {
	h := Health{State: HealthNotPublished}
	for _, d := range g.Devices {
		if d.Published != nil && h.State == HealthNotPublished {
			h.State = HealthOK
		}
		for _, taint := range d.Taints() {
			h.State = HealthTainted
			h.add(Reason{taintCode(taint), taint.TimeAdded})
		}
	}
	for i, r := range h.Reasons {
		if r.Code == "cordoned" && !isCordoned(g) {
			h.Reasons[i].Code = CodeCordonedInPart
		}
	}
	return h
}

// isCordoned reports whether all published devices of a GPU are cordoned.
func isCordoned(g fleet.GPU) bool {
	return !slices.ContainsFunc(g.Devices, func(d fleet.Device) bool {
		return d.Published != nil && !slices.ContainsFunc(d.Published.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintCordoned })
	})
}

// add adds a reason. Of two with one code, the older one stays.
func (h *Health) add(r Reason) {
	i := slices.IndexFunc(h.Reasons, func(known Reason) bool { return known.Code == r.Code })
	switch {
	case i < 0:
		h.Reasons = append(h.Reasons, r)
	case r.Since != nil && (h.Reasons[i].Since == nil || r.Since.Before(h.Reasons[i].Since)):
		h.Reasons[i].Since = r.Since
	}
}

// taintCode returns the code of a taint for a GPU's health. A taint that is not this
// driver's has its key and value.
func taintCode(t resourceapi.DeviceTaint) string {
	if c, ok := cause.Of(t.Key, t.Value); ok {
		return c.Code
	}
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// isPublished reports whether the numbers of the row are published.
func (g GPU) isPublished() bool { return g.Health.State != HealthNotPublished }

// MemoryText returns the promised memory and all memory of the GPU, or a dash.
func (g GPU) MemoryText() string {
	if !g.isPublished() {
		return "-"
	}
	return g.bounded(g.MemoryPromised.IsZero(), Gibibytes(g.MemoryPromised)) + "/" + Gibibytes(g.Memory)
}

// publishedAt returns the time of the last change of each node's slices.
func publishedAt(all []*resourceapi.ResourceSlice, driver string) map[string]metav1.Time {
	latest := map[string]metav1.Time{}
	for _, slice := range all {
		if slice.Spec.Driver != driver {
			continue
		}
		changed := slice.CreationTimestamp
		for _, f := range slice.ManagedFields {
			if f.Time != nil && changed.Before(f.Time) {
				changed = *f.Time
			}
		}
		node := slice.Spec.Pool.Name
		if slice.Spec.NodeName != nil {
			node = cmp.Or(*slice.Spec.NodeName, node)
		}
		if known := latest[node]; known.Before(&changed) {
			latest[node] = changed
		}
	}
	return latest
}

// Section returns the address of the section about a reason, such as the one of
// docs/admin/causes.md#xid-79. It returns "" for the taint of another party.
func (r Reason) Section() string {
	switch {
	case r.Code == CodeNoAgent:
		return doctor.Section("node-without-agent")
	case r.Code == CodeAgentNotReady, r.Code == CodeNodeNotReady:
		return doctor.Section(r.Code)
	case strings.ContainsAny(r.Code, "/="):
		return ""
	}
	return doctor.Section(cause.OfCode(r.Code).Anchor())
}
