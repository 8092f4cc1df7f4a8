// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// pageLimit bounds the search for a page. Its visitor waits for it, and so do the other pages.
	pageLimit = 10 * time.Second
	// nodesExplained is the number of nodes that are explained device by device.
	nodesExplained = 5
	// listLimit bounds the searches for one list of pods, so that it stays quick, and listPodTime
	// each of them. Later requests for the list explain the other pods.
	listLimit   = 2 * time.Second
	listPodTime = time.Second
)

// answer is an explanation, or the reason why there is none.
type answer struct {
	rows.Explanation
	err error
	// until is the time up to which it is used for later readings too.
	until time.Time
}

// explanationPage returns a page with the sections of an explanation, and the devices of its pod or
// claim. The kind precedes the name in a question.
func (s *Site) explanationPage(kind string) pageFunc {
	return func(ctx context.Context, r *reading, q *http.Request) (page, error) {
		namespace, name := q.PathValue("namespace"), q.PathValue("name")
		if r.Refused[doctor.Classes] != "" {
			return page{}, fmt.Errorf("explain %s: %w: list %s", kind+name, gpu.ErrPermission, doctor.Classes)
		}
		question := rows.Question{Namespace: namespace, Name: kind + name, Nodes: nodesExplained, Limit: pageLimit}
		e, err := s.explained(ctx, r, question, true, 1)
		if err != nil {
			return page{}, err
		}
		above := link("Holders", "holders")
		if slices.ContainsFunc(r.waiting, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == e.Pod }) {
			above = link("Waiting", "pods")
		}
		main := markup.Parts{breadcrumbs(above, markup.Text(namespace+"/"+name))}
		sections := e.Sections(true)
		for i, part := range sections {
			var lines markup.Parts
			for _, line := range part.Lines {
				text := strings.TrimPrefix(line, "  ")
				lines = append(lines, markup.E("li", markup.If(text != line, markup.Attr("class", "detail")), prose(text)))
			}
			switch list := markup.E("ul", lines); {
			case i == 0:
				main = append(main, list)
			case lines == nil:
				main = append(main, markup.E("p", prose(part.Heading)))
			default:
				main = append(main, section(part.Heading, list))
			}
		}
		held := slices.DeleteFunc(r.Holders(r.nodes, namespace, r.uses()), func(h rows.Holder) bool {
			return e.Pod != "" && e.Pod != h.Pod || e.Claim != "" && e.Claim != h.Claim
		})
		if len(held) > 0 {
			main = append(main, section("Devices", r.holders(held).draw(r, q)))
		}
		return page{sections[0].Heading, main}, nil
	}
}

// explained returns the answer to a question, which all pages share. In a large cluster one
// takes a processor for seconds, so one is made at a time, and it is used for a multiple of the
// time that it takes. A list makes several of them, so each is used for longer.
func (s *Site) explained(ctx context.Context, r *reading, question rows.Question, events bool, several int) (rows.Explanation, error) {
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return rows.Explanation{}, ctx.Err()
	}
	begin := time.Now()
	maps.DeleteFunc(s.answers, func(_ rows.Question, e answer) bool { return begin.After(e.until) })
	if found, ok := s.answers[question]; ok {
		return found.Explanation, found.err
	}
	e, err := s.explain(ctx, r, question, events)
	if ctx.Err() == nil {
		now := time.Now()
		s.answers[question] = answer{e, err, now.Add(max(s.readings.fresh, time.Duration(several*idleRatio)*now.Sub(begin)))}
	}
	return e, err
}

// explain returns the answer to a question, with the warnings about its pod if it needs the events.
func (s *Site) explain(ctx context.Context, r *reading, question rows.Question, events bool) (rows.Explanation, error) {
	evidence := rows.Evidence{Now: r.at}
	if pod, _ := r.Find(question); pod != nil && events {
		if err := evidence.SetWarnings(s.source.Warnings(ctx, pod)); err != nil {
			return rows.Explanation{}, err
		}
	}
	return r.Explain(ctx, question, evidence)
}

// podsPage shows the pods that wait, the ones that wait longest first.
func (s *Site) podsPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	t := table{
		Table: rows.Table{Heading: []string{"NAMESPACE", "POD", "AGE", "NODE", "REASON", "REMEDY"}}, name: "Pods", empty: "No pod like this waits for a GPU.",
		complete: func(shown [][]string) { s.addReasons(ctx, r, shown) },
	}
	for _, pod := range slices.SortedStableFunc(slices.Values(r.waiting), func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), fleet.ByName(a, b))
	}) {
		message, _ := rows.Unscheduled(pod)
		age := fleet.Age(pod.CreationTimestamp.Time, r.at)
		if pod.CreationTimestamp.IsZero() {
			age = "-"
		}
		t.Rows = append(t.Rows, []string{pod.Namespace, pod.Name, age, rows.OrDash(pod.Spec.NodeName), rows.OrDash(message), "-"})
	}
	return page{"Waiting pods", markup.Parts{
		paragraph("hint", "Pods with claims or extended resources of the driver that have not started. The page of a pod has the reason of each device, and what to change."),
		filterForm(q), t.draw(r, q),
	}}, nil
}

// addReasons replaces the scheduler's messages by the explanations of the pods, as far as the time
// allows.
func (s *Site) addReasons(ctx context.Context, r *reading, shown [][]string) {
	end := time.Now().Add(listLimit)
	for _, row := range shown {
		if r.Refused[doctor.Classes] != "" || !time.Now().Before(end) {
			return
		}
		question := rows.Question{Namespace: row[0], Name: "pod/" + row[1], Nodes: 1, Limit: listPodTime}
		// Without a node, the reason is the scheduler's or the devices'. Events would be a request for each pod.
		events := row[3] != "-"
		e, err := s.explained(ctx, r, question, events, len(shown))
		if err != nil {
			continue
		}
		if causes := append(slices.Clone(e.Causes), e.FitSentence()); causes[0] != "" {
			row[4] = causes[0]
		}
		if len(e.Advice) > 0 {
			row[5] = e.Advice[0]
		}
	}
}
