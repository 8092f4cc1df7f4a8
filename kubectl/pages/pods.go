// SPDX-License-Identifier: Apache-2.0

package pages

import (
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

// answer is an explanation, or the reason why there is none.
type answer struct {
	rows.Explanation
	err error
	// until is the time up to which it is used for later readings too.
	until time.Time
}

func (s *Site) podPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	above := link("Claims", "claims")
	if slices.ContainsFunc(r.waiting, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name }) {
		above = link("Waiting", "pods")
	}
	return s.explanationPage(ctx, r, namespace, "pod/"+name, breadcrumbs(above, markup.Text(namespace+"/"+name)))
}

func (s *Site) whyPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	return s.explanationPage(ctx, r, namespace, "claim/"+name, breadcrumbs(link("Claims", "claims"), link(namespace+"/"+name, "claims", namespace, name), markup.Text("Why it waits")))
}

// pageLimit bounds the search for a page. Its visitor waits for it, and so do the other pages.
const pageLimit = 10 * time.Second

// nodesExplained is the number of nodes that are explained device by device.
const nodesExplained = 5

func (s *Site) explanationPage(ctx context.Context, r *reading, namespace, name string, path markup.Part) (page, error) {
	e, err := s.explain(ctx, r, namespace, name)
	if err != nil {
		return page{}, err
	}
	main := markup.Parts{path}
	if e.Unread != "" {
		main = append(main, paragraph("note", capital(e.Unread)+"."))
	}
	if len(e.Causes) > 0 {
		main = append(main, section("Cause", r.sentences(namespace, e.Causes)))
	}
	if len(e.Advice) > 0 {
		main = append(main, markup.E("section", markup.Attr("class", "advice"), markup.E("h2", markup.Text("What to do")), r.sentences(namespace, e.Advice)))
	}
	if len(e.Repairs) > 0 {
		main = append(main, markup.E("details", markup.E("summary", markup.Text("Repair, by the administrator of the node")), r.sentences(namespace, e.Repairs)))
	}
	if len(e.Containers) > 0 {
		t := grid{name: "Containers", heading: []string{"Container", "Health", "Device", "Limits"}}
		for _, c := range e.Containers {
			t.add(c.Container+"/"+c.Device, markup.Text(rows.OrDash(c.Container)), r.deviceHealth(c.Node, c.Device), deviceLink(r, c.Node, c.Device), markup.Text(rows.OrDash(strings.Join(c.Limits, "; "))))
		}
		main = append(main, section("Containers", t.draw()))
	}
	if len(e.Facts) > 0 {
		main = append(main, section("Facts", r.sentences(namespace, e.Facts)))
	}
	switch {
	case len(e.Fits) > 0 && e.Partial:
		main = append(main, section("It may fit", markup.E("p", markup.Text("The devices may be free on "), r.nodeLinks(e.Fits), markup.Text(", or claims that you may not read hold them."))))
	case len(e.Fits) > 0:
		main = append(main, section("It fits", markup.E("p", markup.Text("The devices are free on "), r.nodeLinks(e.Fits), markup.Text("."))))
	}
	for _, miss := range e.Misses {
		parts := markup.Parts{paragraph("", capital(miss.Missing))}
		for _, request := range miss.Requests {
			t := grid{name: "Devices for the request " + request.Request, heading: []string{"Device", "Reason"}, empty: "No device of the class misses a condition by itself."}
			for _, d := range request.Devices {
				t.add(d.Device, deviceLink(r, miss.Node, d.Device), r.linked(namespace, capital(strings.Join(d.Reasons, "; "))))
			}
			parts = append(parts, markup.E("h3", markup.Text(fmt.Sprintf("Claim %s, request %s: %d of %s", request.Claim, request.Request, request.Meeting, fleet.Number(int(request.Wanted), "device")))), t.draw())
			if request.OtherClasses > 0 {
				parts = append(parts, paragraph("hint", fleet.NumberVerb(request.OtherClasses, "device", "is", "are")+" not of the class."))
			}
			if request.OtherDevices > 0 {
				parts = append(parts, paragraph("hint", fleet.NumberVerb(request.OtherDevices, "further device", "does", "do")+" not meet it either."))
			}
			if request.NotExamined > 0 {
				parts = append(parts, paragraph("hint", fleet.NumberVerb(request.NotExamined, "device", "was", "were")+" not examined."))
			}
		}
		main = append(main, markup.E("section", markup.E("h2", markup.Text("Node "), nodeLink(r, miss.Node)), parts))
	}
	if len(e.NotExamined) > 0 {
		main = append(main, paragraph("hint", "Not examined: "+rows.List(e.NotExamined)+"."))
	}
	if e.Other > 0 {
		main = append(main, paragraph("hint", fleet.NumberVerb(e.Other, "further node", "does", "do")+" not fit either."))
	}
	if len(e.Excluded) > 0 {
		main = append(main, section("Other nodes", r.sentences(namespace, e.Elsewhere())))
	}
	return page{capital(e.Subject), main}, nil
}

// explain returns the explanation of a pod or claim for its page.
func (s *Site) explain(ctx context.Context, r *reading, namespace, name string) (rows.Explanation, error) {
	if r.Refused[doctor.Classes] != "" {
		return rows.Explanation{}, fmt.Errorf("explain %s: %w: list %s", name, gpu.ErrPermission, doctor.Classes)
	}
	question := rows.Question{Namespace: namespace, Name: name, Nodes: nodesExplained, Limit: pageLimit}
	return s.explained(ctx, r, question, s.source.Warnings, 1)
}

// explained returns the answer to a question, which all pages share. In a large cluster one
// takes a processor for seconds, so one is made at a time, and it is used for a multiple of the
// time that it takes. A list makes several of them, so each is used for longer.
func (s *Site) explained(ctx context.Context, r *reading, question rows.Question, warnings func(context.Context, *corev1.Pod) ([]corev1.Event, error), several int) (rows.Explanation, error) {
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
	e, err := r.explain(ctx, question, warnings)
	if ctx.Err() == nil {
		now := time.Now()
		s.answers[question] = answer{e, err, now.Add(max(s.readings.fresh, time.Duration(several*idleRatio)*now.Sub(begin)))}
	}
	return e, err
}

// explain returns the answer to a question, with the warnings about its pod.
func (r *reading) explain(ctx context.Context, question rows.Question, warnings func(context.Context, *corev1.Pod) ([]corev1.Event, error)) (rows.Explanation, error) {
	evidence := rows.Evidence{Now: r.at}
	if pod, _ := r.Find(question); pod != nil {
		if err := evidence.SetWarnings(warnings(ctx, pod)); err != nil {
			return rows.Explanation{}, err
		}
	}
	return r.Explain(ctx, question, evidence)
}
