// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// maxAccounts is the limit of the accounts of a meter. What further ones would have is in
// the account without names.
const maxAccounts = 1000

// Account is the namespace and class to which a claim is charged.
type Account struct {
	Namespace string
	// Class is the DeviceClass; empty if it is not known.
	Class string
}

// Charge is the part of a GPU that a claim holds.
type Charge struct {
	Account
	GPU  gpu.PCIAddress
	GPUs float64
}

// Charges returns the charges for the devices of a claim.
func (n Node) Charges(namespace string, devices []claim.Device) []Charge {
	var all []Charge
	for _, d := range devices {
		if p, known := n.promised(d); known {
			all = append(all, Charge{Account{namespace, d.Class}, d.Name.Address, p.gpus})
		}
	}
	return all
}

// Meter adds up which part of a GPU claims have held for how long. It also adds up their
// part of its energy. Its methods may be called concurrently.
type Meter struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since time.Time // of the last addition
	held  map[types.UID][]Charge
	total map[Account]float64
	// joules are the sums of energy, and energy are the readings of the GPUs.
	joules map[Account]float64
	energy map[gpu.PCIAddress]*energy
}

// NewMeter returns a meter at zero.
func NewMeter(c clock.PassiveClock) *Meter {
	return &Meter{
		clock: c, since: c.Now(), held: map[types.UID][]Charge{}, total: map[Account]float64{},
		joules: map[Account]float64{}, energy: map[gpu.PCIAddress]*energy{},
	}
}

// Hold charges a claim from now on.
func (m *Meter) Hold(uid types.UID, charges []Charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add()
	if m.held[uid] = charges; charges == nil {
		delete(m.held, uid)
	}
}

// Release ends the charges of a claim.
func (m *Meter) Release(uid types.UID) { m.Hold(uid, nil) }

// Set replaces the charged claims, and returns the sums of all accounts, in GPUs times
// seconds. So it adds claims of an earlier process, and charges for GPUs that were not known
// when a claim was prepared.
func (m *Meter) Set(held map[types.UID][]Charge) map[Account]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add()
	clear(m.held)
	maps.Copy(m.held, held)
	return maps.Clone(m.total)
}

// add charges for the time since the last addition. Callers hold mu.
func (m *Meter) add() {
	now := m.clock.Now()
	passed := max(now.Sub(m.since), 0).Seconds()
	m.since = now
	for _, charges := range m.held {
		for _, c := range charges {
			account := c.Account
			if _, known := m.total[account]; !known && len(m.total) >= maxAccounts {
				account = Account{}
			}
			m.total[account] += c.GPUs * passed
			if e := m.energy[c.GPU]; e != nil {
				e.held[account] += c.GPUs * passed
			}
		}
	}
}
