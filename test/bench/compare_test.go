// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestTheRatioIsTheMedianOfThePairs(t *testing.T) {
	// The machine is ten times slower in two of five pairs, and ours takes 1.1 of theirs in each.
	theirs := []float64{1, 1, 1, 10, 10}
	ours := make([]float64, len(theirs))
	for i := range theirs {
		ours[i] = 1.1 * theirs[i]
	}
	// One of ours was interrupted. The median of ours is then a time of the slow machine.
	ours[0] = 50
	if row := compareFigure(figure{samples: ours}, theirs); math.Abs(row.Ratio-1.1) > 1e-9 || !row.Worse || row.Pairs != 5 {
		t.Errorf("got ratio %g of %d pairs, worse %t, want 1.1 of 5 and worse", row.Ratio, row.Pairs, row.Worse)
	}
}

func TestTheRatioOfTheReverseIsTheInverse(t *testing.T) {
	a, b := []float64{1, 2, 3, 8}, []float64{2, 1, 9, 4}
	there, back := compareFigure(figure{samples: a}, b).Ratio, compareFigure(figure{samples: b}, a).Ratio
	if math.Abs(there*back-1) > 1e-9 {
		t.Errorf("ours by theirs is %g, and theirs by ours %g", there, back)
	}
}

func TestFiguresThatAreWorseAreMarked(t *testing.T) {
	for _, c := range []struct {
		name         string
		ours, theirs float64
		marked       bool
		ratio        string
	}{
		{"the same", 4, 4, false, "1.00"},
		{"better", 2, 4, false, "0.50"},
		{"worse within the noise", 4.2, 4, false, "1.05"},
		{"worse", 4.24, 4, true, "1.06"},
		{"theirs needs none", 12, 0, true, "-"},
		{"ours needs none", 0, 12, false, "-"},
		{"neither needs any", 0, 0, false, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := compareFigure(figure{name: "calls", samples: []float64{c.ours}}, []float64{c.theirs})
			var table, text bytes.Buffer
			must(t, report(&table, "table", comparisonHeader("OTHER"), []comparison{row}))
			if got := strings.Contains(table.String(), "worse than 1.05 x"); got != c.marked {
				t.Errorf("marked %t, want %t:\n%s", got, c.marked, table.String())
			}
			if !strings.Contains(table.String(), " "+c.ratio+" ") {
				t.Errorf("no ratio %s:\n%s", c.ratio, table.String())
			}
			// An infinite ratio has no JSON.
			if err := report(&text, "json", nil, []comparison{row}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyFiguresOfBothAreCompared(t *testing.T) {
	ours := figures{Prepare: []float64{1}, PrepareCalls: []float64{100}}
	theirs := figures{Prepare: []float64{1}, NVMLCalls: []float64{12}}
	rows := compare(&ours, &theirs)
	if len(rows) != 1 || rows[0].Figure != "prepare of a whole GPU" {
		t.Errorf("got %+v, want prepare only", rows)
	}
}

func TestQuantilesLieBetweenSamples(t *testing.T) {
	for _, c := range []struct {
		samples    []float64
		part, want float64
	}{
		{nil, .5, 0},
		{[]float64{7}, .95, 7},
		{[]float64{3, 1}, .5, 2},
		{[]float64{3, 1, 2}, .5, 2},
		{[]float64{5, 4, 3, 2, 1}, .95, 4.8},
		{[]float64{1, 2}, 1, 2},
	} {
		if got := quantile(c.samples, c.part); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %g) = %g, want %g", c.samples, c.part, got, c.want)
		}
	}
}

func TestLargeCountsHaveAllDigits(t *testing.T) {
	for value, want := range map[float64]string{0: "-", 0.8449: "0.845 ms", 12.34: "12.3 ms", 3456: "3456 ms"} {
		if got := amount(value, "ms"); got != want {
			t.Errorf("amount(%g) = %q, want %q", value, got, want)
		}
	}
}
