// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
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

// sentences returns a list of sentences with links, each beginning with a capital letter.
func (r *reading) sentences(namespace string, all []string) *markup.Element {
	var items markup.Parts
	for _, s := range all {
		if s != "" {
			items = append(items, markup.E("li", r.linked(namespace, capital(s))))
		}
	}
	return markup.E("ul", items)
}

// capital returns a sentence with a capital letter, unless it begins with a name or a path.
func capital(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if strings.ContainsFunc(strings.TrimRight(word, ",:;."), func(r rune) bool { return !unicode.IsLetter(r) }) || word == "kubectl" {
		return s
	}
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// memoryBar draws the promised part of memory, with the amounts as text.
func memoryBar(promised, total resource.Quantity) markup.Part {
	return amountBar(promised.AsApproximateFloat64(), total.AsApproximateFloat64(), fmt.Sprintf("%s of %s", rows.Gibibytes(promised), rows.Gibibytes(total)))
}

// orDash returns a part of a page, or a dash if it is not known.
func orDash(known bool, of markup.Part) markup.Part {
	if !known {
		return markup.Text("-")
	}
	return of
}

// promisedMemory draws the promised memory of a GPU.
func promisedMemory(g rows.GPU) markup.Part {
	if g.Partial {
		return markup.Text(g.MemoryText())
	}
	return orDash(g.MemoryText() != "-", memoryBar(g.MemoryPromised, g.Memory))
}

// promisedCompute draws the promised compute of a GPU, or its units, in the words of the commands.
func promisedCompute(g rows.GPU) markup.Part {
	if g.Partial {
		return markup.Text(g.ComputeText())
	}
	return orDash(g.ComputeText() != "-", amountBar(g.ComputePart(), 1, g.ComputeText()))
}

// part returns the promised part of memory, from 0 to 1.
func part(promised, total resource.Quantity) float64 {
	if total.IsZero() {
		return 0
	}
	return promised.AsApproximateFloat64() / total.AsApproximateFloat64()
}

func amountBar(amount, total float64, text string) markup.Part {
	width := 0.0
	if total > 0 {
		width = min(100, max(0, amount/total*100))
	}
	return markup.E("span", markup.Attr("class", "amount"),
		markup.E("svg", markup.Attr("class", "gauge"), markup.Attr("aria-hidden", "true"),
			markup.E("rect", markup.Attr("width", fmt.Sprintf("%.1f%%", width)), markup.Attr("height", "100%")),
		), markup.Text(text))
}

func modeBadge(mode fleet.Mode) markup.Part {
	return markup.E("span", markup.Attr("class", "mode "+classOf(mode)), markup.Text(string(mode)))
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
		if n := numbers[mode]; n > 0 && mode != fleet.ModeFree && mode != rows.ModeUnknown {
			parts = append(parts, markup.E("span", square(classOf(mode), letterOf(mode)), markup.Text(fmt.Sprintf("%d %s", n, mode))))
		}
	}
	return markup.E("div", parts)
}

func square(class, letter string) markup.Part {
	return markup.E("span", markup.Attr("class", "square "+class), markup.Attr("aria-hidden", "true"), markup.Text(letter))
}

// strip draws a square for each GPU of a node, with a letter for its mode.
func strip(gpus []rows.GPU) markup.Part {
	gpus = slices.DeleteFunc(slices.Clone(gpus), func(g rows.GPU) bool { return g.Name == "" })
	if len(gpus) == 0 {
		return markup.Text("-")
	}
	var squares markup.Parts
	numbers := map[fleet.Mode]int{}
	tainted, unknown := 0, 0
	for _, g := range gpus {
		class, letter := classOf(g.Mode), letterOf(g.Mode)
		numbers[g.Mode]++
		switch healthClass(g.Health.State) {
		case "tainted":
			class, letter, tainted = class+" tainted", "!", tainted+1
		case "unknown":
			class, letter, unknown = class+" unknown", "?", unknown+1
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
	if unknown > 0 {
		words = append(words, fmt.Sprintf("health of %d unknown", unknown))
	}
	return markup.E("span", markup.Attr("class", "strip"), markup.Attr("title", strings.Join(words, ", ")),
		markup.E("span", squares),
		markup.E("span", markup.Attr("class", "unseen"), markup.Text(strings.Join(words, ", "))))
}

func modes() []fleet.Mode { return append(fleet.Modes(), rows.ModeUnknown, rows.ModeNotYours) }

// classOf returns the class of a mode in the style sheet.
func classOf(mode fleet.Mode) string {
	if mode == rows.ModeNotYours {
		return string(rows.ModeUnknown)
	}
	return string(mode)
}

func letterOf(mode fleet.Mode) string {
	if mode == fleet.ModeFree {
		return "–"
	}
	if classOf(mode) == string(rows.ModeUnknown) {
		return "?"
	}
	return strings.ToUpper(string(mode[:1]))
}
