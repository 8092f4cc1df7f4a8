// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

// frame returns the whole page: navigation, the contents, and the age of the reading.
func (s *Site) frame(p page, r *reading, failure error, q *http.Request) *markup.Element {
	return markup.E("html", markup.Attr("lang", "en"),
		markup.E("head",
			markup.E("meta", markup.Attr("charset", "utf-8")),
			markup.E("meta", markup.Attr("name", "viewport"), markup.Attr("content", "width=device-width, initial-scale=1")),
			markup.E("meta", markup.Attr("name", "color-scheme"), markup.Attr("content", "light dark")),
			markup.E("title", markup.Text(p.title+" · kubectl gpu")),
			markup.E("link", markup.Attr("rel", "stylesheet"), markup.Attr("href", "/assets/ui.css")),
			markup.E("script", markup.Attr("type", "module"), markup.Attr("src", "/assets/ui.js")),
		),
		markup.E("body", markup.Attr("data-refresh", fmt.Sprint(s.refresh.Milliseconds())),
			markup.E("a", markup.Attr("class", "skip"), markup.Attr("href", "#main"), markup.Text("Skip to the contents")),
			markup.E("header",
				markup.E("span", markup.Attr("class", "brand"), markup.Text("kubectl gpu")),
				markup.E("nav", markup.Attr("id", "menu"), markup.Attr("aria-label", "Pages"), markup.E("ul", menu(r, q))),
				markup.E("div", markup.Attr("class", "live"),
					markup.E("span", markup.Attr("id", "state"), markup.Attr("role", "status")),
					markup.E("button", markup.Attr("id", "pause"), markup.Attr("type", "button"), markup.Attr("hidden", ""), markup.Text("Pause")),
				),
			),
			markup.E("main", markup.Attr("id", "main"), markup.Attr("tabindex", "-1"),
				markup.E("h1", markup.Text(p.title)),
				problems(r, failure),
				p.main,
				age(r),
			),
		),
	)
}

// menu returns the links to the pages, with the number of pods that wait and of urgent
// findings.
func menu(r *reading, q *http.Request) markup.Parts {
	var items markup.Parts
	for _, entry := range []struct{ name, path string }{
		{"Fleet", ""}, {"Holders", "holders"}, {"Waiting", "pods"}, {"Findings", "findings"}, {"Namespaces", "namespaces"},
	} {
		number, class, what := 0, "", ""
		switch {
		case r == nil:
		case entry.path == "pods":
			number, class, what = len(r.waiting), "waiting", "waiting pods"
		case entry.path == "findings":
			var state doctor.State
			number, state = r.inspection.urgent()
			class, what = string(state), "problems and warnings"
		}
		items = append(items, markup.E("li", markup.E("a", markup.Attr("href", "/"+entry.path),
			markup.If(q.URL.Path == "/"+entry.path, markup.Attr("aria-current", "page")), markup.Text(entry.name),
			markup.If(number > 0, markup.Text(" "), markup.E("span", markup.Attr("class", "number "+class),
				markup.Text(fmt.Sprint(number)), markup.E("span", markup.Attr("class", "unseen"), markup.Text(" "+what)))))))
	}
	return items
}

// problems returns what a page lacks: the last reading has failed, or the user lacks rights.
func problems(r *reading, failure error) markup.Parts {
	var all markup.Parts
	if failure != nil {
		text := "The last reading of the cluster failed: " + failure.Error() + "."
		if r != nil {
			text += " The page shows the one of " + clock(r.at) + "."
		}
		all = append(all, markup.E("p", markup.Attr("class", "alert"), markup.Attr("role", "alert"), markup.Text(text)))
	}
	if r != nil {
		for _, sentence := range r.Sentences() {
			all = append(all, paragraph("note", sentence))
		}
	}
	return all
}

func age(r *reading) markup.Parts {
	if r == nil {
		return nil
	}
	return markup.Parts{markup.E("p", markup.Attr("class", "age"), markup.Text("Read from the cluster at "),
		markup.E("time", markup.Attr("datetime", r.at.Format(time.RFC3339)), markup.Text(clock(r.at))))}
}

func clock(t time.Time) string { return t.Format("15:04:05") }
