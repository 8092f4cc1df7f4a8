// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
)

const (
	// worseThan is the ratio from which a figure of ours counts as worse.
	worseThan = 1.05
	// tailSamples is the smallest number of samples with a 95th percentile.
	tailSamples = 20
)

// comparison is one row of a comparison of our agent with another driver.
type comparison struct {
	Figure string `json:"figure"`
	// Ours and Theirs are medians, and the P95 are 0 if there are too few samples.
	Ours      float64 `json:"ours"`
	OursP95   float64 `json:"oursP95,omitempty"`
	Theirs    float64 `json:"theirs"`
	TheirsP95 float64 `json:"theirsP95,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	// Ratio is the median of ours by theirs, over all pairs: below 1 ours is better. It is 0 if
	// each pair has a 0.
	Ratio float64 `json:"ratio,omitempty"`
	// Pairs of samples, each of which was measured shortly after the other.
	Pairs int `json:"pairs"`
	// Worse is set if ours is worse by more than 5 percent.
	Worse bool `json:"worse,omitempty"`
}

// compare returns the figures of ours and theirs that both have.
func compare(ours, theirs *figures) []comparison {
	others := map[string][]float64{}
	for _, figure := range theirs.ofDriver() {
		others[figure.name] = figure.samples
	}
	var rows []comparison
	for _, figure := range ours.ofDriver() {
		if other, ok := others[figure.name]; ok {
			rows = append(rows, compareFigure(figure, other))
		}
	}
	return rows
}

// compareFigure compares samples in pairs. The ratio of a pair has less noise than that of the
// medians, because both were measured while the machine was equally busy.
func compareFigure(figure figure, theirs []float64) comparison {
	row := comparison{
		Figure: figure.name, Unit: figure.unit, Pairs: min(len(figure.samples), len(theirs)),
		Ours: quantile(figure.samples, .5), Theirs: quantile(theirs, .5),
	}
	if row.Pairs >= tailSamples {
		row.OursP95, row.TheirsP95 = quantile(figure.samples, .95), quantile(theirs, .95)
	}
	// Between two ratios lies their geometric mean: that of a half and 2 is 1.
	var logarithms []float64
	for i := range row.Pairs {
		if a, b := figure.samples[i], theirs[i]; a > 0 && b > 0 {
			logarithms = append(logarithms, math.Log(a/b))
		}
	}
	if len(logarithms) > 0 {
		row.Ratio = math.Exp(quantile(logarithms, .5))
	}
	row.Worse = row.Ratio > worseThan || row.Ratio == 0 && row.Ours > row.Theirs
	return row
}

// comparisonHeader returns the header of a comparison with another driver.
func comparisonHeader(theirs string) []string {
	return []string{"FIGURE", "OURS", "P95", theirs, "P95", "OURS / " + theirs, "PAIRS", ""}
}

func (c comparison) cells() []string {
	mark, ratio := "", "-"
	if c.Worse {
		mark = fmt.Sprintf("worse than %.2f x", worseThan)
	}
	if c.Ratio > 0 {
		ratio = fmt.Sprintf("%.2f", c.Ratio)
	}
	return []string{c.Figure, amount(c.Ours, c.Unit), amount(c.OursP95, c.Unit), amount(c.Theirs, c.Unit), amount(c.TheirsP95, c.Unit), ratio, strconv.Itoa(c.Pairs), mark}
}
