// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

// column is a column of a list.
type column[T any] struct {
	heading string
	// compare orders two rows. A column without it cannot be sorted.
	compare func(a, b T) int
	cell    func(T) markup.Part
}

// key is the value of ?sort= for the column.
func (c column[T]) key() string { return strings.ReplaceAll(strings.ToLower(c.heading), " ", "-") }

// list is a table whose rows the address of the page sorts.
type list[T any] struct {
	name    string
	columns []column[T]
	// standard is the order without ?sort=: the key of a column, after "-" for the largest
	// first. It is empty if the rows are in order.
	standard string
	// id is the same for the same object in each reading.
	id    func(T) string
	empty string
}

// draw returns the requested part of the rows in the requested order, and links to the
// other parts.
func (l list[T]) draw(q *http.Request, rows []T) markup.Parts {
	return l.drawRows(q, rows, func([]T) {})
}

// drawRows is draw for rows of which complete fills in the shown ones.
func (l list[T]) drawRows(q *http.Request, rows []T, complete func(shown []T)) markup.Parts {
	by := l.order(q)
	rows = l.sorted(rows, by)
	shown, parts := cut(q, rows, l.name)
	complete(shown)
	t := grid{name: l.name, empty: l.empty}
	for _, c := range l.columns {
		t.heading = append(t.heading, c.heading)
		if c.compare == nil {
			t.sorts = append(t.sorts, sortLink{})
			continue
		}
		link := sortLink{state: "none", href: sortAddress(q, c.key())}
		switch by {
		case c.key():
			link = sortLink{state: "ascending", href: sortAddress(q, "-"+c.key())}
		case "-" + c.key():
			link.state = "descending"
		}
		t.sorts = append(t.sorts, link)
	}
	for _, row := range shown {
		var cells []markup.Part
		for _, c := range l.columns {
			cells = append(cells, c.cell(row))
		}
		t.add(l.id(row), cells...)
	}
	return markup.Parts{t.draw(), parts}
}

// order returns the requested order, or the standard one if no column has it.
func (l list[T]) order(q *http.Request) string {
	wanted := q.URL.Query().Get("sort")
	for _, c := range l.columns {
		if c.compare != nil && strings.TrimPrefix(wanted, "-") == c.key() {
			return wanted
		}
	}
	return l.standard
}

// sorted returns the rows in an order. The sort is stable.
func (l list[T]) sorted(rows []T, by string) []T {
	rows = slices.Clone(rows)
	for _, c := range l.columns {
		switch {
		case c.compare == nil:
		case by == c.key():
			slices.SortStableFunc(rows, c.compare)
		case by == "-"+c.key():
			slices.SortStableFunc(rows, func(a, b T) int { return c.compare(b, a) })
		}
	}
	return rows
}

// sortAddress returns the address of the page in another order. It shows the first part.
func sortAddress(q *http.Request, by string) string {
	query := q.URL.Query()
	query.Set("sort", by)
	query.Del("page")
	return "?" + query.Encode()
}

// sortLink is the heading of a column that can be sorted.
type sortLink struct {
	// state is the value of aria-sort, and href the address that sorts by the column.
	state, href string
}

func (s sortLink) heading(text string) *markup.Element {
	parts := markup.Parts{markup.Attr("scope", "col"), markup.Attr("role", "columnheader")}
	if s.href == "" {
		return markup.E("th", append(parts, markup.Text(text))...)
	}
	arrow := map[string]string{"ascending": "▲", "descending": "▼"}[s.state]
	return markup.E("th", append(parts, markup.Attr("class", "sortable"), markup.Attr("aria-sort", s.state),
		markup.E("a", markup.Attr("href", s.href), markup.Text(text)),
		markup.If(arrow != "", markup.E("span", markup.Attr("class", "arrow"), markup.Attr("aria-hidden", "true"), markup.Text(arrow))))...)
}

// by returns a comparison of rows by a value.
func by[T any, V cmp.Ordered](value func(T) V) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(value(a), value(b)) }
}

// text returns the cells of a column of texts.
func text[T any](value func(T) string) func(T) markup.Part {
	return func(row T) markup.Part { return markup.Text(value(row)) }
}

// textColumn is a column of texts that sorts by them.
func textColumn[T any](heading string, value func(T) string) column[T] {
	return column[T]{heading, by(value), text(value)}
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
