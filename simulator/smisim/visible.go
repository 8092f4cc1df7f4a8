// SPDX-License-Identifier: Apache-2.0

package smisim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// device is a GPU whose device node exists.
type device struct {
	nvmlsim.SMIGPU
	// index counts the visible GPUs, as NVML does. number counts the GPUs of the node.
	index, number int
	// migs are the visible MIG devices.
	migs []nvmlsim.SMIMIG
}

// visible returns the visible GPUs with their visible MIG devices.
func (p *Program) visible() []device {
	exists := func(node string) bool {
		_, err := os.Stat(filepath.Join(p.root, "dev", node))
		return err == nil
	}
	missing := func(node string) bool { return !exists(node) }
	monitor := exists(p.tables.MonitorNode)
	var all []device
	for i, g := range p.tables.GPUs {
		if missing(g.Node) {
			continue
		}
		d := device{SMIGPU: g, index: len(all), number: i}
		for _, m := range g.MIGDevices {
			if monitor || !slices.ContainsFunc(m.Nodes, missing) {
				d.migs = append(d.migs, m)
			}
		}
		all = append(all, d)
	}
	return all
}

// choose returns the GPUs that the IDs name. It returns errNoDevices if there are none.
func choose(all []device, ids string) ([]device, error) {
	names := strings.Split(ids, ",")
	chosen := slices.DeleteFunc(slices.Clone(all), func(d device) bool {
		return ids != "" && !slices.ContainsFunc(names, d.hasID)
	})
	if len(chosen) == 0 {
		return nil, errNoDevices
	}
	return chosen, nil
}
