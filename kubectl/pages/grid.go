// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"net/http"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

// grid is a table. The first cell of a row is its heading.
type grid struct {
	name    string
	heading []string
	// sorts has a link for each heading, or is nil.
	sorts []sortLink
	rows  []gridRow
	// empty is the text instead of a table without rows.
	empty string
}

type gridRow struct {
	// key is the same for the same object in each reading.
	key   string
	cells []markup.Part
}

func (g *grid) add(key string, cells ...markup.Part) {
	g.rows = append(g.rows, gridRow{key, cells})
}

// draw returns the table. The roles keep it a table for screen readers on narrow screens, where
// the style sheet makes a card of each row.
func (g *grid) draw() *markup.Element {
	if len(g.rows) == 0 {
		return paragraph("empty", g.empty)
	}
	var heading, body markup.Parts
	for i, h := range g.heading {
		var sort sortLink
		if g.sorts != nil {
			sort = g.sorts[i]
		}
		heading = append(heading, sort.heading(h))
	}
	for _, row := range g.rows {
		cells := markup.Parts{markup.Attr("role", "row"), markup.Attr("data-key", row.key)}
		for i, cell := range row.cells {
			if i == 0 {
				cells = append(cells, markup.E("th", markup.Attr("scope", "row"), markup.Attr("role", "rowheader"), cell))
				continue
			}
			cells = append(cells, markup.E("td", markup.Attr("role", "cell"), markup.Attr("data-label", g.heading[i]), markup.E("div", cell)))
		}
		body = append(body, markup.E("tr", cells))
	}
	return markup.E("div", markup.Attr("class", "scroll"), markup.E("table", markup.Attr("role", "table"), markup.Attr("aria-label", g.name),
		markup.E("thead", markup.Attr("role", "rowgroup"), markup.E("tr", markup.Attr("role", "row"), heading)),
		markup.E("tbody", markup.Attr("role", "rowgroup"), body),
	))
}

// texts returns cells of texts.
func texts(all ...string) []markup.Part {
	var cells []markup.Part
	for _, s := range all {
		cells = append(cells, markup.Text(s))
	}
	return cells
}

// facts are names and their values.
type facts struct{ items markup.Parts }

func (f *facts) add(name string, value markup.Part) {
	f.items = append(f.items, markup.E("div", markup.E("dt", markup.Text(name)), markup.E("dd", value)))
}

func (f *facts) text(name, value string) {
	if value != "" {
		f.add(name, markup.Text(value))
	}
}

func (f *facts) draw(class string) *markup.Element {
	return markup.E("dl", markup.Attr("class", class), f.items)
}

// filterForm returns the field that filters a list.
func filterForm(q *http.Request, label string) *markup.Element {
	sort := q.URL.Query().Get("sort")
	return markup.E("form", markup.Attr("role", "search"), markup.Attr("method", "get"), markup.Attr("class", "filter"),
		markup.If(sort != "", markup.E("input", markup.Attr("type", "hidden"), markup.Attr("name", "sort"), markup.Attr("value", sort))),
		markup.E("label", markup.Attr("for", "q"), markup.Text(label)),
		markup.E("input", markup.Attr("id", "q"), markup.Attr("name", "q"), markup.Attr("type", "search"), markup.Attr("autocomplete", "off"), markup.Attr("value", q.URL.Query().Get("q"))),
		markup.E("button", markup.Attr("type", "submit"), markup.Text("Filter")))
}

// matches reports whether a text contains each word of the filter.
func matches(q *http.Request, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(q.URL.Query().Get("q"))) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}
