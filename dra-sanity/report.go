// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

const (
	success = "ok"
	failure = "FAILED"
	skip    = "skipped"
)

// result is what a scenario has shown.
type result struct {
	ID      string  `json:"id"`
	Want    string  `json:"want"`
	Source  string  `json:"source"`
	Verdict string  `json:"verdict"`
	Message string  `json:"message,omitempty"`
	Seconds float64 `json:"seconds"`
}

// formats of a report.
var formats = map[string]func(io.Writer, string, []result) error{"text": writeText, "json": writeJSON, "junit": writeJUnit}

func writeText(w io.Writer, driver string, results []result) error {
	counts := map[string]int{}
	var text strings.Builder
	for _, r := range results {
		counts[r.Verdict]++
		fmt.Fprintf(&text, "%-8s %-22s %s\n", r.Verdict, r.ID, r.Want)
		if r.Message != "" {
			// The prefix keeps a driver's answer from being read as a command of a CI system.
			fmt.Fprintf(&text, "         %s\n         wanted by: %s\n", strings.ReplaceAll(r.Message, "\n", "\n         | "), r.Source)
		}
	}
	_, err := fmt.Fprintf(w, "%s%s: %d ok, %d failed, %d skipped\n", text.String(), driver, counts[success], counts[failure], counts[skip])
	return err
}

func writeJSON(w io.Writer, driver string, results []result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{"driver": driver, "results": results})
}

// testSuite is a report as JUnit writes it.
type testSuite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Seconds float64  `xml:"time,attr"`
	Failure *message `xml:"failure"`
	Skipped *message `xml:"skipped"`
}

type message struct {
	Message string `xml:"message,attr"`
	Wanted  string `xml:",chardata"`
}

// printable returns a message that may have an answer of a driver, for a terminal, cut to 4 KiB.
func printable(text string) string {
	if most := 4 << 10; len(text) > most {
		text = text[:most] + " (cut)"
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func writeJUnit(w io.Writer, driver string, results []result) error {
	suite := testSuite{Name: "dra-sanity", Tests: len(results)}
	for _, r := range results {
		wanted := r.Want + "\nwanted by: " + r.Source
		c := testCase{Class: driver, Name: r.ID, Seconds: r.Seconds}
		switch r.Verdict {
		case failure:
			suite.Failures++
			c.Failure = &message{r.Message, wanted}
		case skip:
			suite.Skipped++
			c.Skipped = &message{r.Message, wanted}
		}
		suite.Cases = append(suite.Cases, c)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func writeList(w io.Writer) (err error) {
	for _, s := range scenarios {
		_, writeErr := fmt.Fprintf(w, "%-22s %s\n", s.id, s.want)
		err = errors.Join(err, writeErr)
	}
	return err
}
