// SPDX-License-Identifier: Apache-2.0

// Program language counts, for each folder and document of a repository, the
// phrases that this project does not use per 1,000 words:
//
//	go run ./test/tree/language [-top DIR] [-phrases] [-findings PREFIX]
//
// The test of this package fails if there is such a phrase.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Count is the number of words and findings in some texts.
type Count struct {
	Words, Findings int
}

// Density returns the findings per 1,000 words.
func (c Count) Density() float64 {
	if c.Words == 0 {
		return 0
	}
	return 1000 * float64(c.Findings) / float64(c.Words)
}

// Report holds the findings of a whole repository.
type Report struct {
	Units    map[string]Count
	Kinds    map[Kind]Count
	Phrases  map[string]int
	Findings map[string][]string // by unit: "file:line: quote: name; write: instead"
}

// Check reads all texts under top.
func Check(top string) (*Report, error) {
	files, err := Files(top)
	if err != nil {
		return nil, err
	}
	report := &Report{map[string]Count{}, map[Kind]Count{}, map[string]int{}, map[string][]string{}}
	for _, file := range files {
		texts, err := Read(top, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		unit := Unit(file)
		for _, text := range texts {
			found := Find(text)
			count := Count{Words: len(strings.Fields(text.Text)), Findings: len(found)}
			report.Kinds[text.Kind] = report.Kinds[text.Kind].plus(count)
			if slices.Contains(names, text.Kind) || text.Kind == Sentence {
				count.Words = 0 // names are no running text, and sentences are in comments
			}
			report.Units[unit] = report.Units[unit].plus(count)
			for _, f := range found {
				report.Phrases[f.Phrase.Name]++
				report.Findings[unit] = append(report.Findings[unit],
					fmt.Sprintf("%s:%d: %s %q: %s; write %s", file, f.Line, text.Kind, f.Quote, f.Phrase.Name, f.Phrase.Instead))
			}
		}
	}
	return report, nil
}

func (c Count) plus(other Count) Count {
	return Count{c.Words + other.Words, c.Findings + other.Findings}
}

func main() {
	top := flag.String("top", ".", "top folder of the repository")
	phrases := flag.Bool("phrases", false, "count each phrase as well")
	findings := flag.String("findings", "", "print the findings of folders and documents that begin with this path")
	flag.Parse()
	report, err := Check(*top)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *findings != "" {
		for _, unit := range slices.Sorted(maps.Keys(report.Findings)) {
			if strings.HasPrefix(unit, *findings) {
				fmt.Println(strings.Join(report.Findings[unit], "\n"))
			}
		}
		return
	}
	row := func(name string, c Count) {
		fmt.Printf("%8d %8d %8.1f  %s\n", c.Words, c.Findings, c.Density(), name)
	}
	fmt.Println("   words  phrases  per 1,000")
	var all Count
	for _, unit := range slices.Sorted(maps.Keys(report.Units)) {
		row(unit, report.Units[unit])
		all = all.plus(report.Units[unit])
	}
	for _, kind := range slices.Sorted(maps.Keys(report.Kinds)) {
		row("all of kind "+string(kind), report.Kinds[kind])
	}
	row("all", all)
	if *phrases {
		for _, name := range slices.Sorted(maps.Keys(report.Phrases)) {
			fmt.Printf("%6d  %s\n", report.Phrases[name], name)
		}
	}
}
