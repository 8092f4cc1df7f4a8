// SPDX-License-Identifier: Apache-2.0

package gpupages

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpupages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

func podsPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	found := slices.DeleteFunc(r.WaitingPods(), func(p gpurows.WaitingPod) bool { return !matches(q, p.Namespace+"/"+p.Name, p.Node, p.Message) })
	shown, parts := cut(q, found, "Pods")
	t := grid{name: "Waiting pods", heading: []string{"Pod", "Node", "Scheduler"}, empty: "No pod with claims waits."}
	for _, p := range shown {
		name := p.Namespace + "/" + p.Name
		t.add(name, append([]markup.Part{link(name, "pods", p.Namespace, p.Name)}, texts(gpurows.OrDash(p.Node), gpurows.OrDash(p.Message))...)...)
	}
	return page{"Waiting pods", markup.Parts{
		paragraph("hint", "Pods with claims or extended resources of the driver that have not started. Each page has the reason, and what to change."),
		filterForm(q, "Pods with a name, node or message"), t.draw(), parts,
	}}, nil
}

// explained is an explanation, or the reason why there is none.
type explained struct {
	gpurows.Explanation
	err error
	// until is the time up to which it is used for later readings too.
	until time.Time
}

func (s *Site) podPage(ctx context.Context, r *reading, q *http.Request) (page, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	return s.explanationPage(ctx, r, namespace, "pod/"+name, breadcrumbs(link("Waiting", "pods"), markup.Text(namespace+"/"+name)))
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
	if len(e.Causes) > 0 {
		main = append(main, section("Cause", sentenceList(e.Causes)))
	}
	if len(e.Advice) > 0 {
		main = append(main, markup.E("section", markup.Attr("class", "advice"), markup.E("h2", markup.Text("What to do")), sentenceList(e.Advice)))
	}
	if len(e.Facts) > 0 {
		main = append(main, section("Facts", sentenceList(e.Facts)))
	}
	if len(e.Fits) > 0 {
		main = append(main, section("It fits", paragraph("", "The devices are free on "+gpurows.List(e.Fits)+".")))
	}
	for _, miss := range e.Misses {
		parts := markup.Parts{paragraph("", capital(miss.Missing))}
		for _, request := range miss.Requests {
			t := grid{name: "Devices for the request " + request.Request, heading: []string{"Device", "Reason"}, empty: "No device of the class misses a condition by itself."}
			for _, d := range request.Devices {
				t.add(d.Device, deviceLink(r, miss.Node, d.Device), markup.Text(capital(strings.Join(d.Reasons, "; "))))
			}
			parts = append(parts, markup.E("h3", markup.Text(fmt.Sprintf("Claim %s, request %s: %d of %d devices", request.Claim, request.Request, request.Meeting, request.Wanted))), t.draw())
			if request.OtherClasses > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d devices are not of the class.", request.OtherClasses)))
			}
			if request.OtherDevices > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d further devices do not meet it either.", request.OtherDevices)))
			}
			if request.NotExamined > 0 {
				parts = append(parts, paragraph("hint", fmt.Sprintf("%d devices were not examined.", request.NotExamined)))
			}
		}
		main = append(main, section("Node "+miss.Node, parts))
	}
	if len(e.NotExamined) > 0 {
		main = append(main, paragraph("hint", "Not examined: "+gpurows.List(e.NotExamined)+"."))
	}
	if e.Other > 0 {
		main = append(main, paragraph("hint", fmt.Sprintf("%d further nodes do not fit either.", e.Other)))
	}
	return page{capital(e.Subject), main}, nil
}

// explain returns the explanation of a pod or claim, which all pages share. In a large cluster
// one takes a processor for seconds, so one is made at a time, and it is used for a multiple of
// the time that it takes.
func (s *Site) explain(ctx context.Context, r *reading, namespace, name string) (gpurows.Explanation, error) {
	if r.Refused[doctor.Classes] != "" {
		return gpurows.Explanation{}, fmt.Errorf("explain %s: %w: list %s", name, gpu.ErrPermission, doctor.Classes)
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return gpurows.Explanation{}, ctx.Err()
	}
	begin := time.Now()
	maps.DeleteFunc(s.explained, func(_ gpurows.Question, e explained) bool { return begin.After(e.until) })
	question := gpurows.Question{Namespace: namespace, Name: name, Nodes: nodesExplained, Limit: pageLimit}
	if found, ok := s.explained[question]; ok {
		return found.Explanation, found.err
	}
	e, err := r.Explain(ctx, question, s.source.Warnings)
	if ctx.Err() == nil {
		now := time.Now()
		s.explained[question] = explained{e, err, now.Add(max(s.readings.fresh, idleRatio*now.Sub(begin)))}
	}
	return e, err
}
