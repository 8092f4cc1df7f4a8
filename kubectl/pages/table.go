// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// table is a table of a command on a page. The address of the page filters, orders and cuts its
// rows.
type table struct {
	rows.Table
	name string
	// empty is the text instead of a table without rows.
	empty string
	// node is the node of all rows, if they have no column for it.
	node string
	// complete fills in the rows that are shown; nil if they are complete.
	complete func(shown [][]string)
}

// draw returns the requested rows, and links to the others. The roles keep it a table for screen
// readers on narrow screens, where the style sheet makes a card of each row.
func (t table) draw(r *reading, q *http.Request) markup.Parts {
	if q.URL.Query().Get("q") != "" {
		t.Rows, t.Totals = t.Rows[:len(t.Rows)-t.Totals], 0 // they are of all rows
	}
	order := q.URL.Query().Get("sort")
	indexes, err := t.Order(strings.TrimPrefix(order, "-"), strings.HasPrefix(order, "-"))
	if err != nil {
		order = ""
		indexes, _ = t.Order(order, false)
	}
	t.Table = t.Reordered(slices.DeleteFunc(indexes, func(i int) bool { return !matches(q, t.Rows[i]...) }))
	if len(t.Rows) == t.Totals {
		return markup.Parts{paragraph("empty", t.empty)}
	}
	shown, parts := cut(q, len(t.Rows), t.name)
	if t.complete != nil {
		t.complete(t.Rows[shown.first:shown.last])
	}
	var heading, body markup.Parts
	for _, h := range t.Heading {
		heading = append(heading, sortHeading(q, h, order))
	}
	for i := shown.first; i < shown.last; i++ {
		cells := markup.Parts{markup.Attr("role", "row"), markup.Attr("data-key", t.key(i))}
		for j, h := range t.Heading {
			cell := t.cell(r, i, j)
			if j == 0 {
				cells = append(cells, markup.E("th", markup.Attr("scope", "row"), markup.Attr("role", "rowheader"), cell))
				continue
			}
			cells = append(cells, markup.E("td", markup.Attr("role", "cell"), markup.Attr("data-label", h), markup.E("div", cell)))
		}
		body = append(body, markup.E("tr", cells))
	}
	return markup.Parts{markup.E("div", markup.Attr("class", "scroll"), markup.E("table", markup.Attr("role", "table"), markup.Attr("aria-label", t.name),
		markup.E("thead", markup.Attr("role", "rowgroup"), markup.E("tr", markup.Attr("role", "row"), heading)),
		markup.E("tbody", markup.Attr("role", "rowgroup"), body),
	)), parts}
}

// value returns the cell of a row below a heading; "" if the table has no such column.
func (t table) value(row int, heading string) string {
	if i := slices.Index(t.Heading, heading); i >= 0 {
		return t.Rows[row][i]
	}
	return ""
}

// key returns the names in a row, which are the same for the same object in each reading.
func (t table) key(row int) string {
	var names []string
	for _, heading := range []string{"NAMESPACE", "POD", "CONTAINER", "CLAIM", "NODE", "DEVICE", "GPU", "CODE", "OBJECT", "FOUND"} {
		if name := t.value(row, heading); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, "/")
}

// cell returns a cell, with a link to the page of the object that it names.
func (t table) cell(r *reading, row, column int) markup.Part {
	text, node, namespace := t.Rows[row][column], t.node, t.value(row, "NAMESPACE")
	if node == "" {
		node = t.value(row, "NODE")
	}
	switch heading := t.Heading[column]; {
	case text == "-" || row >= len(t.Rows)-t.Totals:
		return markup.Text(text)
	case heading == "NODE":
		return r.nodeLink(text, text)
	case heading == "GPU", heading == "DEVICE":
		return r.deviceLink(node, text)
	case heading == "NAMESPACE":
		return anchor(text, "/holders?q="+url.QueryEscape(text))
	case heading == "CLAIM":
		return link(text, "claims", namespace, text)
	case heading == "POD" && !strings.HasPrefix(text, "PodGroup "):
		return link(text, "pods", namespace, text)
	case heading == "MODE":
		return markup.E("span", markup.Attr("class", "mode "+classOf(fleet.Mode(text))), markup.Text(text))
	case heading == "HEALTH":
		return health(t.Health[row], text)
	case heading == "STATE":
		return markup.E("span", markup.Attr("class", "badge "+text), markup.Text(signs[doctor.State(text)]+" "+text))
	case heading == "CODE":
		return markup.E("span", markup.Attr("class", "word"), anchor(text, doctor.Section(text)))
	case heading == "OBJECT":
		return r.objectLink(text)
	case slices.Contains(unordered, heading):
		return markup.E("div", markup.Attr("class", "prose"), prose(text))
	default:
		return markup.Text(text)
	}
}

// signs distinguish the states of findings by more than a colour.
var signs = map[doctor.State]string{doctor.Problem: "✖", doctor.Warning: "⚠", doctor.Unknown: "?"}

// health returns the health of a GPU, with a link to the section about its first reason. A sign
// distinguishes it by more than a colour.
func health(h rows.Health, text string) markup.Part {
	class, sign := "unknown", "? "
	switch h.State {
	case rows.HealthOK:
		class, sign = "ok", ""
	case rows.HealthTainted:
		class, sign = "tainted", "⚠ "
	case rows.HealthUnknown, rows.HealthNotPublished:
	}
	section := ""
	if len(h.Reasons) > 0 {
		section = h.Reasons[0].Section()
	}
	return markup.E("span", markup.Attr("class", class), markup.Text(sign), anchor(text, section))
}

// classOf returns the class of a mode in the style sheet.
func classOf(mode fleet.Mode) string {
	if mode == rows.ModeNotYours {
		return string(rows.ModeUnknown)
	}
	return string(mode)
}

// deviceLink returns a link to the GPU of a device on the page of its node.
func (r *reading) deviceLink(node, device string) markup.Part {
	if !r.hasNode(node) {
		return markup.Text(device)
	}
	return anchor(device, address("nodes", node)+"?q="+url.QueryEscape(fleet.GPUOf(device)))
}

// nodeLink returns a link to a node; text only if it has no page.
func (r *reading) nodeLink(text, name string) markup.Part {
	if !r.hasNode(name) {
		return markup.Text(text)
	}
	return link(text, "nodes", name)
}

func (r *reading) hasNode(name string) bool {
	return slices.ContainsFunc(r.nodes, func(n fleet.Node) bool { return n.Name == name })
}

// objectLink returns a link to the object of a finding, such as "claim default/train".
func (r *reading) objectLink(text string) markup.Part {
	kind, name, _ := strings.Cut(text, " ")
	namespace, name, isNamespaced := strings.Cut(name, "/")
	switch {
	case kind == "node":
		return r.nodeLink(text, namespace)
	case isNamespaced && (kind == "pod" || kind == "claim"):
		return link(text, kind+"s", namespace, name)
	default:
		return markup.Text(text)
	}
}

// prose returns a text. The addresses of documents in it are links.
func prose(text string) markup.Parts {
	var parts markup.Parts
	for i, word := range strings.Split(text, " ") {
		if i > 0 {
			parts = append(parts, markup.Text(" "))
		}
		if strings.HasPrefix(word, gpu.Page("")) {
			parts = append(parts, anchor(word, word))
		} else {
			parts = append(parts, markup.Text(word))
		}
	}
	return parts
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

// filterForm returns the field that filters the tables of a page.
func filterForm(q *http.Request) *markup.Element {
	sort := q.URL.Query().Get("sort")
	return markup.E("form", markup.Attr("role", "search"), markup.Attr("method", "get"), markup.Attr("class", "filter"),
		markup.If(sort != "", markup.E("input", markup.Attr("type", "hidden"), markup.Attr("name", "sort"), markup.Attr("value", sort))),
		markup.E("label", markup.Attr("for", "q"), markup.Text("Rows with")),
		markup.E("input", markup.Attr("id", "q"), markup.Attr("name", "q"), markup.Attr("type", "search"), markup.Attr("autocomplete", "off"), markup.Attr("value", q.URL.Query().Get("q"))),
		markup.E("button", markup.Attr("type", "submit"), markup.Text("Filter")))
}

// unordered are the columns of sentences, which have no order of use.
var unordered = []string{"REASON", "REMEDY", "FOUND", "MEANING"}

// sortHeading returns a heading with a link that orders the rows by it, or in the other direction.
func sortHeading(q *http.Request, text, order string) *markup.Element {
	parts := markup.Parts{markup.Attr("scope", "col"), markup.Attr("role", "columnheader")}
	if text == "AGE" || slices.Contains(unordered, text) {
		return markup.E("th", append(parts, markup.Text(text))...)
	}
	key := strings.ReplaceAll(strings.ToLower(text), " ", "-")
	state, arrow := "none", ""
	switch order {
	case key:
		state, arrow, key = "ascending", "▲", "-"+key
	case "-" + key:
		state, arrow = "descending", "▼"
	}
	query := q.URL.Query()
	query.Set("sort", key)
	query.Del("page")
	return markup.E("th", append(parts, markup.Attr("class", "sortable"), markup.Attr("aria-sort", state),
		markup.E("a", markup.Attr("href", "?"+query.Encode()), markup.Text(text)),
		markup.If(arrow != "", markup.E("span", markup.Attr("class", "arrow"), markup.Attr("aria-hidden", "true"), markup.Text(arrow))))...)
}

// perPage bounds the rows of a table.
const perPage = 50

// span is a part of a table's rows: from first up to last, which is excluded.
type span struct{ first, last int }

// cut returns the requested part of so many rows, and links to the parts around it.
func cut(q *http.Request, all int, what string) (span, markup.Parts) {
	number, err := strconv.Atoi(q.URL.Query().Get("page"))
	last := max(1, (all+perPage-1)/perPage)
	if err != nil || number < 1 {
		number = 1
	}
	number = min(number, last)
	shown := span{(number - 1) * perPage, min(number*perPage, all)}
	if all <= perPage {
		return shown, nil
	}
	to := func(text string, page int) markup.Parts {
		if page < 1 || page > last {
			return nil
		}
		query := q.URL.Query()
		query.Set("page", strconv.Itoa(page))
		return markup.Parts{anchor(text, "?"+query.Encode())}
	}
	return shown, markup.Parts{markup.E("nav", markup.Attr("class", "parts"), markup.Attr("aria-label", "Parts of the table"),
		markup.E("span", markup.Text(fmt.Sprintf("%s %d to %d of %d", what, shown.first+1, shown.last, all))), to("Previous", number-1), to("Next", number+1))}
}
