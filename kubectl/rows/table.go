// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Table is rows of cells below a heading, as commands print them and pages show them.
type Table struct {
	Heading []string
	// Wide are the headings of the last cells of each row, which commands print on request.
	Wide []string
	Rows [][]string
	// Totals is the number of last rows that an order leaves in place.
	Totals int
	// Health is the health of the GPU of each row; nil if the table has no health.
	Health []Health
}

// GPUTable returns the table of the GPUs. It has the columns about the use if used is not nil.
func GPUTable(all []GPU, used Uses, now time.Time) Table {
	t := Table{Heading: []string{"NODE", "GPU", "MODEL", "MODE", "CLAIMS", "MEMORY", "COMPUTE", "HEALTH"}, Wide: []string{"UUID", "TAINTS"}}
	for _, g := range all {
		t.Health = append(t.Health, g.Health)
		t.Rows = append(t.Rows, []string{
			g.Node, OrDash(g.Name), OrDash(strings.TrimPrefix(g.Model, "NVIDIA ")), string(g.Mode), g.ClaimsText(),
			g.MemoryText(), g.ComputeText(), g.Health.Text(now), OrDash(g.UUID), OrDash(strings.Join(g.Taints, ",")),
		})
	}
	t.addUse(used, func(i int) []string { return append(all[i].cells(), all[i].Foreign.Text(now)) })
	return t
}

// HolderTable returns the table of the holders. It has the columns about the use if used is not nil.
func HolderTable(all []Holder, used Uses, now time.Time) Table {
	t := Table{
		Heading: []string{"NAMESPACE", "POD", "CONTAINER", "CLAIM", "NODE", "DEVICE", "MEMORY", "COMPUTE", "HEALTH", "LIMITED BY"},
		Wide:    []string{"LIMIT OF A PROCESS", "LIMIT OF A CONTAINER"},
	}
	for _, h := range all {
		pod, share := h.Pod, ptr.Deref(h.Share, v1alpha1.ShareData{})
		if pod == "" && h.PodGroup != "" {
			pod = "PodGroup " + h.PodGroup
		}
		t.Health = append(t.Health, h.Health)
		t.Rows = append(t.Rows, []string{
			h.Namespace, OrDash(pod), OrDash(h.Container), h.Claim, h.Node, h.Device, promisedText(h.Memory), h.ComputeText(), h.Health.Text(now), h.HeldBy(),
			gibibytesOrDash(share.MemoryLimit), gibibytesOrDash(share.ContainerMemoryLimit),
		})
	}
	t.addUse(used, func(i int) []string { return append(all[i].cells(), all[i].Foreign.Text(now)) })
	return t
}

// UsageTable returns the table of the namespaces, with their sum as the last row.
func UsageTable(usages []Usage, used Uses) Table {
	all := append(slices.Clone(usages), Total(usages))
	t := Table{Heading: []string{"NAMESPACE", "CLAIMS", "GPUS", "MEMORY", "COMPUTE", "SLOTS", "GPU HOURS"}, Totals: 1}
	for _, u := range all {
		hours := "-"
		if u.Hours != nil {
			hours = Tenths(*u.Hours)
		}
		t.Rows = append(t.Rows, []string{u.Namespace, fmt.Sprint(u.Claims), Tenths(u.GPUs), promisedText(u.Memory), fmt.Sprintf("%d%%", u.Compute), fmt.Sprint(u.Slots), hours})
	}
	t.addUse(used, func(i int) []string { return all[i].cells() })
	return t
}

// TopologyTable returns the table of the paths between the GPUs of a node.
func TopologyTable(all []Topology) Table {
	t := Table{Heading: []string{"GPU"}, Wide: []string{"NVLINK DOMAIN", "PCIE SWITCH"}}
	for _, g := range all {
		t.Heading = append(t.Heading, g.Name)
	}
	t.Heading = append(t.Heading, "NUMA", "PCIE ROOT", "CLAIMS")
	for _, g := range all {
		row := []string{g.Name}
		for _, path := range g.Paths {
			row = append(row, string(path))
		}
		t.Rows = append(t.Rows, append(row, OrDash(g.NUMANode), OrDash(g.PCIeRoot), OrDash(fleet.List(1, g.Claims)), OrDash(g.NVLinkDomain), OrDash(g.PCIeSwitch)))
	}
	return t
}

// addUse adds the columns about the use, before the wide ones. cells returns those of a row.
func (t *Table) addUse(used Uses, cells func(i int) []string) {
	if used == nil {
		return
	}
	before, headings := len(t.Heading), []string{"USED", "SM USED", "FOREIGN"}
	for i := range t.Rows {
		own := cells(i)
		headings = headings[:len(own)]
		t.Rows[i] = slices.Insert(t.Rows[i], before, own...)
	}
	t.Heading = append(t.Heading, headings...)
}

// cells returns the used memory and multiprocessors, or dashes.
func (u Use) cells() []string {
	sm := "-"
	if u.SM != nil {
		sm = fmt.Sprintf("%.0f%%", *u.SM)
	}
	return []string{gibibytesOrDash(u.Memory), sm}
}

// Order returns the indexes of the rows in order of a column; as they are without a name. It leaves
// out totals, and cells without a value are last. The case of the name does not matter, and dashes
// may stand for spaces. The error wraps [gpu.ErrInvalid].
func (t Table) Order(column string, descending bool) ([]int, error) {
	indexes := make([]int, len(t.Rows)-t.Totals)
	for i := range indexes {
		indexes[i] = i
	}
	if column == "" {
		return indexes, nil
	}
	headings := slices.Concat(t.Heading, t.Wide)
	index := slices.IndexFunc(headings, func(h string) bool {
		return strings.EqualFold(h, column) || strings.EqualFold(strings.ReplaceAll(h, " ", "-"), column)
	})
	if index < 0 {
		return nil, fmt.Errorf("%w: want a column: %s", gpu.ErrInvalid, strings.Join(headings, ", "))
	}
	slices.SortStableFunc(indexes, func(a, b int) int {
		x, y := t.Rows[a][index], t.Rows[b][index]
		if descending && x != "-" && y != "-" {
			x, y = y, x
		}
		return compareCells(x, y)
	})
	return indexes, nil
}

// Reordered returns the table with its rows in another order, and then the totals.
func (t Table) Reordered(order []int) Table {
	all, health := t.Rows, t.Health
	totals := all[len(all)-t.Totals:]
	t.Rows, t.Health = nil, nil
	for _, from := range order {
		t.Rows = append(t.Rows, all[from])
		if health != nil {
			t.Health = append(t.Health, health[from])
		}
	}
	t.Rows = append(t.Rows, totals...)
	return t
}

var (
	leadingNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?`)
	ratio         = regexp.MustCompile(`^([0-9]+)/([0-9]+)\b`)
)

// compareCells compares two cells of a column: numbers by their value, and then texts. Cells
// without a value are last.
func compareCells(a, b string) int {
	x, isNumber := cellNumber(a)
	y, isOther := cellNumber(b)
	switch {
	case a == b:
		return 0
	case a == "-":
		return 1
	case b == "-":
		return -1
	case isNumber && isOther:
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	default:
		return strings.Compare(a, b)
	}
}

// cellNumber returns the number that a cell begins with, also after the words of a bound. Units such as "6/7 slices" are a
// percentage, as in the other cells of that column.
func cellNumber(cell string) (float64, bool) {
	cell = strings.TrimPrefix(strings.TrimPrefix(cell, "at most "), "≥")
	if m := ratio.FindStringSubmatch(cell); m != nil {
		used, _ := strconv.ParseFloat(m[1], 64)
		total, _ := strconv.ParseFloat(m[2], 64)
		return 100 * used / max(total, 1), true
	}
	number, err := strconv.ParseFloat(leadingNumber.FindString(cell), 64)
	return number, err == nil
}
