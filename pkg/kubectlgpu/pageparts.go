// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/markup"
)

// address returns the path of a page.
func address(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + url.PathEscape(name))
	}
	return b.String()
}

// link returns a link to a page of this site.
func link(text string, names ...string) *markup.Element {
	return markup.E("a", markup.Attr("href", address(names...)), markup.Text(text))
}

func paragraph(class, text string) *markup.Element {
	return markup.E("p", markup.If(class != "", markup.Attr("class", class)), markup.Text(text))
}

func section(heading string, parts ...markup.Part) *markup.Element {
	return markup.E("section", markup.E("h2", markup.Text(heading)), markup.Parts(parts))
}

// breadcrumbs returns the way to a page from the fleet.
func breadcrumbs(links ...markup.Part) *markup.Element {
	items := markup.Parts{markup.E("li", link("Fleet", ""))}
	for _, l := range links {
		items = append(items, markup.E("li", l))
	}
	return markup.E("nav", markup.Attr("class", "path"), markup.Attr("aria-label", "Path to this page"), markup.E("ol", items))
}

// sentenceList returns a list of sentences, each beginning with a capital letter.
func sentenceList(all []string) *markup.Element {
	var items markup.Parts
	for _, s := range all {
		if s != "" {
			items = append(items, markup.E("li", markup.Text(capital(s))))
		}
	}
	return markup.E("ul", items)
}

func capital(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// grid is a table. The first cell of a row is its heading.
type grid struct {
	name    string
	heading []string
	rows    []gridRow
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
	for _, h := range g.heading {
		heading = append(heading, markup.E("th", markup.Attr("scope", "col"), markup.Attr("role", "columnheader"), markup.Text(h)))
	}
	for _, row := range g.rows {
		cells := markup.Parts{markup.Attr("role", "row"), markup.Attr("data-key", row.key)}
		for i, cell := range row.cells {
			if i == 0 {
				cells = append(cells, markup.E("th", markup.Attr("scope", "row"), markup.Attr("role", "rowheader"), cell))
				continue
			}
			cells = append(cells, markup.E("td", markup.Attr("role", "cell"), markup.Attr("data-label", g.heading[i]), cell))
		}
		body = append(body, markup.E("tr", cells))
	}
	return markup.E("div", markup.Attr("class", "scroll"), markup.E("table", markup.Attr("role", "table"), markup.Attr("aria-label", g.name),
		markup.E("thead", markup.Attr("role", "rowgroup"), markup.E("tr", markup.Attr("role", "row"), heading)),
		markup.E("tbody", markup.Attr("role", "rowgroup"), body),
	))
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

// memoryBar draws the promised part of memory, with the amounts as text.
func memoryBar(promised, total resource.Quantity) markup.Part {
	return amountBar(promised.AsApproximateFloat64(), total.AsApproximateFloat64(), fmt.Sprintf("%s of %s", gibibytes(promised), gibibytes(total)))
}

func computeBar(promised, total int64) markup.Part {
	return amountBar(float64(promised), float64(total), fmt.Sprintf("%d%%", promised))
}

func amountBar(part, total float64, text string) markup.Part {
	width := 0.0
	if total > 0 {
		width = min(100, max(0, part/total*100))
	}
	return markup.E("span", markup.Attr("class", "amount"),
		markup.E("svg", markup.Attr("class", "gauge"), markup.Attr("aria-hidden", "true"),
			markup.E("rect", markup.Attr("width", fmt.Sprintf("%.1f%%", width)), markup.Attr("height", "100%")),
		), markup.Text(text))
}

func modeBadge(mode fleet.Mode) markup.Part {
	return markup.E("span", markup.Attr("class", "mode "+string(mode)), markup.Text(string(mode)))
}

func healthBadge(taints []string) markup.Part {
	if len(taints) == 0 {
		return markup.E("span", markup.Attr("class", "ok"), markup.Text("ok"))
	}
	return markup.E("span", markup.Attr("class", "tainted"), breakable("⚠ "+strings.Join(taints, ", ")))
}

// breakable returns text that narrow columns break after the signs in taints.
func breakable(text string) markup.Parts {
	var parts markup.Parts
	for text != "" {
		end := strings.IndexAny(text, "/=:") + 1
		if end == 0 {
			end = len(text)
		}
		parts = append(parts, markup.Text(text[:end]), markup.E("wbr"))
		text = text[end:]
	}
	return parts
}

// legend draws the number of GPUs in each mode, with the squares of [strip].
func legend(numbers map[fleet.Mode]int) markup.Part {
	parts := markup.Parts{markup.Attr("class", "legend")}
	for _, mode := range modes() {
		if n := numbers[mode]; n > 0 && mode != fleet.ModeFree {
			parts = append(parts, markup.E("span", square(string(mode), letterOf(mode)), markup.Text(fmt.Sprintf("%d %s", n, mode))))
		}
	}
	return markup.E("div", parts)
}

func square(class, letter string) markup.Part {
	return markup.E("span", markup.Attr("class", "square "+class), markup.Attr("aria-hidden", "true"), markup.Text(letter))
}

// strip draws a square for each GPU of a node, with a letter for its mode.
func strip(gpus []fleet.GPU) markup.Part {
	var squares markup.Parts
	numbers := map[fleet.Mode]int{}
	tainted := 0
	for _, g := range gpus {
		class, letter := string(g.Mode), letterOf(g.Mode)
		numbers[g.Mode]++
		if len(taints(g)) > 0 {
			class, letter, tainted = class+" tainted", "!", tainted+1
		}
		squares = append(squares, square(class, letter))
	}
	var words []string
	for _, mode := range modes() {
		if n := numbers[mode]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, mode))
		}
	}
	if tainted > 0 {
		words = append(words, fmt.Sprintf("%d with taints", tainted))
	}
	return markup.E("span", markup.Attr("class", "strip"), markup.Attr("title", strings.Join(words, ", ")),
		markup.E("span", squares),
		markup.E("span", markup.Attr("class", "unseen"), markup.Text(strings.Join(words, ", "))))
}

func modes() []fleet.Mode {
	return []fleet.Mode{fleet.ModeFree, fleet.ModeWhole, fleet.ModeShared, fleet.ModeMIG, fleet.ModeSlots, fleet.ModeSeats}
}

func letterOf(mode fleet.Mode) string {
	if mode == fleet.ModeFree {
		return "–"
	}
	return strings.ToUpper(string(mode[:1]))
}

// filterForm returns the field that filters a list.
func filterForm(q *http.Request, label string) *markup.Element {
	return markup.E("form", markup.Attr("role", "search"), markup.Attr("method", "get"), markup.Attr("class", "filter"),
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

// perPage bounds the rows of a list.
const perPage = 50

// cut returns the items of the requested part of a list, and links to the parts around it.
func cut[T any](q *http.Request, all []T, what string) ([]T, markup.Parts) {
	number, err := strconv.Atoi(q.URL.Query().Get("page"))
	last := max(1, (len(all)+perPage-1)/perPage)
	if err != nil || number < 1 {
		number = 1
	}
	number = min(number, last)
	first := (number - 1) * perPage
	shown := all[first:min(first+perPage, len(all))]
	if len(all) <= perPage {
		return shown, nil
	}
	to := func(text string, page int) markup.Parts {
		if page < 1 || page > last {
			return nil
		}
		query := q.URL.Query()
		query.Set("page", strconv.Itoa(page))
		return markup.Parts{markup.E("a", markup.Attr("href", "?"+query.Encode()), markup.Text(text))}
	}
	return shown, markup.Parts{markup.E("nav", markup.Attr("class", "parts"), markup.Attr("aria-label", "Parts of the list"),
		markup.E("span", markup.Text(fmt.Sprintf("%s %d to %d of %d", what, first+1, first+len(shown), len(all)))), to("Previous", number-1), to("Next", number+1))}
}
