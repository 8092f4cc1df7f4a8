// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// energy is the last reading of a GPU's counter of energy.
type energy struct {
	joules float64
	at     time.Time
	// held is what each account has held since, in GPUs times seconds.
	held map[Account]float64
}

// AddEnergy charges the energy that GPUs have used since their last readings. It returns
// the sums of all accounts in joules. readings are the counters of the GPUs, in joules.
//
// An account is charged for the part of a GPU that it held in that time, whether it used it
// or not. The rest is charged to no account. A counter that has gone back, as after the
// driver was loaded again, starts at 0 again.
func (m *Meter) AddEnergy(readings map[gpu.PCIAddress]float64) map[Account]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add()
	for address, joules := range readings {
		last := m.energy[address]
		m.energy[address] = &energy{joules: joules, at: m.since, held: map[Account]float64{}}
		if last == nil || joules < last.joules {
			continue
		}
		passed := m.since.Sub(last.at).Seconds()
		if passed <= 0 {
			// Nothing can be divided by no time: the next reading counts from the last one.
			m.energy[address] = last
			continue
		}
		for account, held := range last.held {
			m.joules[account] += (joules - last.joules) * held / passed
		}
	}
	return maps.Clone(m.joules)
}
