// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	reportFiles    = "test/gpu/node/reports/*"
	measuredPage   = "docs/user/measured.md"
	measuredFigure = "docs/images/measured.svg"
)

// kernels are the kernels of the stories by their number of blocks.
var kernels = []struct{ blocks, text string }{{"32", "small kernel"}, {"1056", "kernel that fills the GPU"}}

// methods are the throughput figures of reports, with their text and the colour of their bars.
var methods = []struct{ name, text, colour string }{
	{"alone", "one pod alone", "#8c959f"},
	{"slices", "time slices", "#f0883e"},
	{"seats", "seats", "#2da44e"},
	{"shares", "shares, an equal part of `compute` each", "#2da44e"},
	{"proportional", "shares, `compute: Proportional`", "#2da44e"},
	{"burst", "shares, `compute: Burst`", "#1f6feb"},
	{"crowd", "48 of the least shares", "#2da44e"},
	{"small-proportional", "one share of 4Gi, `Proportional`", "#2da44e"},
	{"small-burst", "one share of 4Gi, `Burst`", "#1f6feb"},
}

// throughput is a line of a report.
type throughput struct {
	machine, blocks string
	method, pods    int
	perSecond       float64
	fairness        string
	p50, p99, sms   string
	ofAlone         float64
}

var (
	reportHead = regexp.MustCompile(`(?m)^(?:# )?A run of gpu-node on (.*), \d{4}-\d\d-\d\d$`)
	figure     = regexp.MustCompile(`(?m)^- ([a-z-]+?)(?:-(\d+))?, kernel of (\d+) blocks: (\d+) launches/s together, least/most (\S+), worst p50 (\S+) ms, worst p99 (\S+) ms, multiprocessors (\d+)$`)
)

// readReports returns the throughput figures of all reports, ordered by machine, method and pods.
func readReports(root string) ([]throughput, error) {
	files, err := filepath.Glob(filepath.Join(root, reportFiles))
	if err != nil {
		return nil, err
	}
	var all []throughput
	alone := map[string]float64{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		head := reportHead.FindStringSubmatch(string(text))
		if head == nil {
			return nil, fmt.Errorf("%s: no line \"A run of gpu-node on MACHINE, DATE\"", file)
		}
		for _, m := range figure.FindAllStringSubmatch(string(text), -1) {
			t := throughput{machine: head[1], blocks: m[3], pods: 1, fairness: m[5], p50: m[6], p99: m[7], sms: m[8]}
			if t.method = slices.IndexFunc(methods, func(w struct{ name, text, colour string }) bool { return w.name == m[1] }); t.method < 0 {
				return nil, fmt.Errorf("%s: the figure %q has no text in methods", file, m[1])
			}
			if m[2] != "" {
				t.pods, _ = strconv.Atoi(m[2]) // digits
			}
			t.perSecond, _ = strconv.ParseFloat(m[4], 64) // digits
			if m[1] == "alone" {
				alone[t.machine+t.blocks] = t.perSecond
			}
			all = append(all, t)
		}
	}
	for i, t := range all {
		if alone[t.machine+t.blocks] == 0 {
			return nil, fmt.Errorf("%s: no figure of one pod alone", t.machine)
		}
		all[i].ofAlone = t.perSecond / alone[t.machine+t.blocks]
	}
	slices.SortStableFunc(all, func(a, b throughput) int {
		return cmp.Or(strings.Compare(a.machine, b.machine), cmp.Compare(a.method, b.method), cmp.Compare(a.pods, b.pods))
	})
	return all, nil
}

func (t throughput) text() string {
	if t.pods > 1 {
		return fmt.Sprintf("%d %s", t.pods, methods[t.method].text)
	}
	return methods[t.method].text
}

// measured returns the tables of the page, and the picture.
func measured(all []throughput) (tables, svg string) {
	var out, bars strings.Builder
	y := 0
	for len(all) > 0 {
		machine := all[0].machine
		next := slices.IndexFunc(all, func(t throughput) bool { return t.machine != machine })
		if next < 0 {
			next = len(all)
		}
		for _, kernel := range kernels {
			title := machine + ": " + kernel.text
			rows := [][]string{{title, "SMs of each", "of one pod alone", "least / most", "worst p50, p99"}}
			y += 38
			fmt.Fprintf(&bars, "  <text x=\"20\" y=\"%d\" font-weight=\"bold\">%s</text>\n", y, title)
			for _, t := range all[:next] {
				if t.blocks != kernel.blocks {
					continue
				}
				rows = append(rows, []string{t.text(), t.sms, fmt.Sprintf("%.2f ×", t.ofAlone), t.fairness, t.p50 + ", " + t.p99 + " ms"})
				y += 22
				fmt.Fprintf(&bars, `  <text x="340" y="%d" text-anchor="end">%s</text><rect x="350" y="%d" width="%.0f" height="16" fill="%s"/><text x="%.0f" y="%d">%.2f ×</text>`+"\n",
					y, strings.ReplaceAll(t.text(), "`", ""), y-13, 90*t.ofAlone, methods[t.method].colour, 356+90*t.ofAlone, y, t.ofAlone)
			}
			out.WriteString(table(rows) + "\n")
		}
		all = all[next:]
	}
	y += 20
	return strings.TrimSuffix(out.String(), "\n"), fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 %[1]d" role="img" aria-labelledby="title" font-family="sans-serif" font-size="14" fill="#1f2328">
  <title id="title">Launches a second of all pods together, as a multiple of one pod alone on the GPU</title>
  <rect width="820" height="%[1]d" fill="#ffffff"/>
%[2]s</svg>
`, y, bars.String())
}
