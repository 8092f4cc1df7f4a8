// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Describe names a GPU for people who search for it.
func Describe(address gpu.PCIAddress) string {
	return fmt.Sprintf("GPU %s at %s", address.DeviceName(), address)
}

// PartitionsAt returns the MIG devices of exactly the profile and place of a name: one
// for each compute instance.
func PartitionsAt(mig gpu.MIG, name kind.Name) []gpu.Partition {
	var there []gpu.Partition
	for _, p := range mig.Partitions {
		if p.Profile == name.Profile && p.Placement.Start == name.Start {
			there = append(there, p)
		}
	}
	return there
}
