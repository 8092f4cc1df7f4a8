// SPDX-License-Identifier: Apache-2.0

package kind

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// Class describes a kind for the chart: its DeviceClass and the admission policies.
type Class struct {
	// Comment is the text above the DeviceClass, in lines. It is empty for a kind whose
	// class the chart does not generate.
	Comment string
	// Capacities says in the policies' messages what requests name: "seats for seats".
	Capacities string
}

// Class returns what the chart says of the kind.
func (k Kind) Class() Class { return k.rules().class() }

// Strategies returns the strategies that users of a device of the kind can have.
func (k Kind) Strategies() []v1alpha1.Strategy {
	switch c := k.Configuration(); {
	case c.Strategy != "":
		return []v1alpha1.Strategy{c.Strategy}
	case c.Own != "":
		return []v1alpha1.Strategy{v1alpha1.StrategyMPS, v1alpha1.StrategyPlain, v1alpha1.StrategyTimeSlicing}
	}
	return nil
}

// NeedsMPS reports whether devices of the kind are of no use without MPS daemons.
func (k Kind) NeedsMPS() bool { return k.Configuration().Strategy == v1alpha1.StrategyMPS }
