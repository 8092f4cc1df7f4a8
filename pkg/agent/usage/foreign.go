// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Foreign has the last findings about processes of pods without a claim. Its methods may be
// called from any goroutine.
type Foreign struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last *agentv1.Foreign
}

// NewForeign returns a value without findings.
func NewForeign(c clock.PassiveClock) *Foreign { return &Foreign{clock: c} }

// Last returns the last findings; nil if there are none yet. The caller must not change them.
func (f *Foreign) Last() *agentv1.Foreign {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// SetForeignProcesses replaces the findings. checked are the devices on which all are known.
func (f *Foreign) SetForeignProcesses(found []claim.ForeignProcess, checked []kind.Name) {
	now := &agentv1.Foreign{Checked: f.clock.Now().UTC(), Devices: foreignDevices(found, checked)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = now
}

// foreignDevices returns the devices with foreign processes, and then the other checked devices.
func foreignDevices(found []claim.ForeignProcess, checked []kind.Name) []agentv1.ForeignDevice {
	byDevice := map[kind.Name]*agentv1.ForeignDevice{}
	getOrAdd := func(name kind.Name) *agentv1.ForeignDevice {
		if byDevice[name] == nil {
			byDevice[name] = &agentv1.ForeignDevice{Device: name.String()}
		}
		return byDevice[name]
	}
	for _, name := range checked {
		getOrAdd(name)
	}
	unknown := map[kind.Name]bool{}
	for _, s := range found {
		d := getOrAdd(s.Device)
		d.Processes++
		d.PIDs = append(d.PIDs, s.PID)
		unknown[s.Device] = unknown[s.Device] || s.MemoryBytes == 0
		add(&d.MemoryUsedBytes, s.MemoryBytes)
	}
	all := make([]agentv1.ForeignDevice, 0, len(byDevice))
	for name, d := range byDevice {
		if unknown[name] {
			d.MemoryUsedBytes = nil
		}
		slices.Sort(d.PIDs)
		d.PIDs = d.PIDs[:min(len(d.PIDs), agentv1.MaxForeignPIDs)]
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b agentv1.ForeignDevice) int {
		return cmp.Or(cmp.Compare(min(b.Processes, 1), min(a.Processes, 1)), cmp.Compare(a.Device, b.Device))
	})
	return all[:min(len(all), agentv1.MaxForeignDevices)]
}
