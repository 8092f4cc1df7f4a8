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

// MIGModeIsOn returns the error for a whole GPU in a MIG mode that claims have not
// switched on.
func MIGModeIsOn(address gpu.PCIAddress) error {
	return fmt.Errorf("%w as a whole GPU: somebody has switched it to MIG mode; switch it back with nvidia-smi -i %s -mig 0 or cordon the node", gpu.ErrNotSupported, address)
}
