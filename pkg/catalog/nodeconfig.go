// SPDX-License-Identifier: Apache-2.0

package catalog

// NodeConfig is the configuration of a node: the kinds of devices that it offers
// besides whole GPUs, and how. Nodes of one release can have different ones, and it
// changes while the agent runs. A change keeps the devices that claims hold; see [Held].
type NodeConfig struct {
	Offer  Offer
	Shares ShareOffer
	MIG    MIGOffer
	// Layout is the name of the MIG configuration that MIG.Config is; empty for none.
	Layout string
	// HeldOnly offers only devices that claims hold: the configuration that the node
	// should have is not known.
	HeldOnly bool
}

// HoldBack returns the configuration with only devices that claims hold.
func (c NodeConfig) HoldBack() NodeConfig {
	c.Offer, c.Layout, c.MIG.Config, c.HeldOnly = "", "", nil, true
	return c
}
