// SPDX-License-Identifier: Apache-2.0

// Package cause is the one table of causes for which a device is not given to new claims. It also has
// the causes for which the programs of a share do not compute.
//
// The agent publishes a cause as a taint, or of a share as a condition of the claim, and writes it
// into events. Commands, pages, checks,
// alerts and documents take its meaning and remedies from this table.
//
// Package cause is pure. Which evidence begins and ends a cause is for package inventory.
package cause
