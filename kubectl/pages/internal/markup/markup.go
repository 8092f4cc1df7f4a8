// SPDX-License-Identifier: Apache-2.0

// Package markup makes HTML and SVG of elements. All text and all attributes are escaped, so
// names from a cluster are safe anywhere but in scripts and in attributes that are scripts.
//
// Templates of the standard library would keep the linker from dropping unused methods, and
// make the program 20 MB larger.
package markup

import (
	"io"
	"strings"
	"unicode"

	"golang.org/x/net/html"
)

// Part is an attribute, a text or an element inside an element.
type Part interface{ addTo(parent *html.Node) }

// Element is an element.
type Element html.Node

// Text is text inside an element.
type Text string

// Parts are several parts. None of them is drawn if it is nil.
type Parts []Part

type attribute html.Attribute

// E returns an element. It ignores parts that are nil.
func E(name string, parts ...Part) *Element {
	e := &html.Node{Type: html.ElementNode, Data: name}
	Parts(parts).addTo(e)
	return (*Element)(e)
}

// Attr returns an attribute.
func Attr(name, value string) Part { return attribute{Key: name, Val: value} }

// If returns the parts if the condition holds, otherwise none.
func If(condition bool, parts ...Part) Parts {
	if !condition {
		return nil
	}
	return parts
}

// Printable returns text without characters that XML forbids. It also removes characters
// that change the direction or place of the following text.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Render writes the element, as HTML and XML both.
func Render(w io.Writer, e *Element) error { return html.Render(w, (*html.Node)(e)) }

func (e *Element) addTo(parent *html.Node) { parent.AppendChild((*html.Node)(e)) }

func (t Text) addTo(parent *html.Node) {
	parent.AppendChild(&html.Node{Type: html.TextNode, Data: Printable(string(t))})
}

func (a attribute) addTo(parent *html.Node) {
	a.Val = Printable(a.Val)
	parent.Attr = append(parent.Attr, html.Attribute(a))
}

func (p Parts) addTo(parent *html.Node) {
	for _, part := range p {
		if part != nil {
			part.addTo(parent)
		}
	}
}
