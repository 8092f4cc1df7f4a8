// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// waitingPod is a pod that has not started, and the scheduler's reason.
type waitingPod struct {
	pod     *corev1.Pod
	message string
	// reason and remedy are from the explanation. The reason is the scheduler's until there is one.
	reason, remedy string
}

func (p waitingPod) name() string { return p.pod.Namespace + "/" + p.pod.Name }

// Limits of the explanations for one list of pods, so that the list stays quick. Later
// requests for the list explain the other pods.
const (
	listLimit   = 2 * time.Second
	listPodTime = time.Second
)

// podsPage shows the pods that wait, the ones that wait longest first.
func (s *Site) podsPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	var found []waitingPod
	for _, pod := range r.waiting {
		message, _ := rows.Unscheduled(pod)
		if p := (waitingPod{pod: pod, message: message}); matches(q, p.name(), pod.Spec.NodeName, message) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b waitingPod) int { return cmp.Compare(a.name(), b.name()) })
	pods := list[waitingPod]{
		name: "Pods", id: waitingPod.name, standard: "-age", empty: "No pod waits for a GPU.",
		columns: []column[waitingPod]{
			{"Pod", by(waitingPod.name), func(p waitingPod) markup.Part { return link(p.name(), "pods", p.pod.Namespace, p.pod.Name) }},
			ageColumn(r, "Age", func(p waitingPod) time.Time { return p.pod.CreationTimestamp.Time }),
			{"Node", by(func(p waitingPod) string { return p.pod.Spec.NodeName }), func(p waitingPod) markup.Part { return nodeLink(r, rows.OrDash(p.pod.Spec.NodeName)) }},
			{"Reason", nil, func(p waitingPod) markup.Part {
				return markup.Parts{
					markup.E("div", r.linked(p.pod.Namespace, capital(rows.OrDash(p.reason)))),
					markup.If(p.remedy != "", markup.E("div", markup.Attr("class", "hint"), r.linked(p.pod.Namespace, capital(p.remedy)))),
				}
			}},
		},
	}
	table := pods.drawRows(q, found, func(shown []waitingPod) { s.addReasons(ctx, r, shown) })
	return page{"Waiting pods", markup.Parts{
		paragraph("hint", "Pods with claims or extended resources of the driver that have not started. The page of a pod has the reason of each device, and what to change."),
		filterForm(q, "Pods with a name, node or message"), table,
	}}, nil
}

// addReasons adds the first sentences of the explanations to the pods, as far as the time allows.
func (s *Site) addReasons(ctx context.Context, r *reading, pods []waitingPod) {
	end := time.Now().Add(listLimit)
	for i := range pods {
		p := &pods[i]
		p.reason = p.message
		if r.Refused[doctor.Classes] != "" || !time.Now().Before(end) {
			continue
		}
		question := rows.Question{Namespace: p.pod.Namespace, Name: "pod/" + p.pod.Name, Nodes: 1, Limit: listPodTime}
		warnings := s.source.Warnings
		if p.pod.Spec.NodeName == "" {
			// The reason is the scheduler's or the devices'. Events would be a request for each pod.
			warnings = func(context.Context, *corev1.Pod) ([]corev1.Event, error) { return nil, nil }
		}
		if e, err := s.explained(ctx, r, question, warnings, len(pods)); err == nil {
			p.reason, p.remedy = firstSentences(e, p.message)
		}
	}
}

// firstSentences returns why a pod waits, in one sentence, and the first advice.
func firstSentences(e rows.Explanation, message string) (reason, remedy string) {
	if len(e.Advice) > 0 {
		remedy = e.Advice[0]
	}
	for _, fact := range e.Facts {
		// Skip the scheduler's message, and the devices that the pod has.
		isDevice := strings.HasPrefix(fact, "claim ") && strings.Contains(fact, " has ") && strings.Contains(fact, " of node ")
		if !isDevice && !strings.HasPrefix(fact, "scheduler: ") {
			return fact, remedy
		}
	}
	switch {
	case len(e.Fits) > 0 && e.Partial:
		return "the devices may be free on " + rows.List(e.Fits) + ", or claims that you may not read hold them", remedy
	case len(e.Fits) > 0:
		return "the devices are free on " + rows.List(e.Fits), remedy
	case len(e.Misses) > 0:
		return e.Misses[0].Missing, remedy
	case len(e.Excluded) > 0:
		return "node " + e.Excluded[0].Node + ": " + strings.Join(e.Excluded[0].Reasons, "; "), remedy
	default:
		return message, remedy
	}
}
