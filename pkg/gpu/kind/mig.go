// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// MIG is a partition of a GPU. A claim takes all of it, or a share of its memory.
const MIG Kind = v1alpha1.DeviceTypeMIG

// Partition returns the name of a MIG device.
func Partition(address gpu.PCIAddress, profile gpu.Profile, start int) Name {
	return Name{Kind: MIG, Address: address, Profile: profile, Start: start}
}

func migDevice() rules {
	return rules{
		kind: MIG, scope: ScopePartition, takes: TakesMemory, offer: v1alpha1.OfferMIG,
		configuration: Configuration{Own: v1alpha1.KindMigConfig, Noun: "a MIG device"},
		class:         Class{Capacities: "memory for a MIG device"},
		format:        formatMIG, parse: parseMIG,
		attributes: migAttributes, capacities: migCapacities, consume: Amounts.share,
	}
}

func formatMIG(n Name) string {
	return fmt.Sprintf("%s-mig-%s-%d", n.Address.DeviceName(), n.Profile.Label(), n.Start)
}

var migSuffix = regexp.MustCompile(`^-mig-(.+)-(0|[1-9][0-9]?)$`)

func parseMIG(s string) (Name, bool, error) {
	address, rest, ok := cutAddress(s)
	m := migSuffix.FindStringSubmatch(rest)
	if !ok || m == nil {
		return Name{}, false, nil
	}
	profile, err := gpu.ParseProfileLabel(m[1])
	start, _ := strconv.Atoi(m[2]) // the expression admits numbers only
	return Name{Kind: MIG, Address: address, Profile: profile, Start: start}, true, err
}

func migAttributes(f Inputs, a Attributes) {
	a.name(v1alpha1.AttributeProfile, f.Profile.String())
	a.name(v1alpha1.AttributeParentUUID, f.GPU.UUID)
	a.name(v1alpha1.AttributeUUID, f.UUID)
	a.numaNode(f)
	if f.Located || f.All {
		a.text(v1alpha1.AttributeProductName, f.GPU.ProductName)
		a.locality(f)
	}
	if f.All {
		a.shares(f)
	}
}

// migCapacities returns the memory without a request policy, even if claims can take shares
// of it: the policy would cost 8 kB for a hundred devices. So a claim that requests no
// amount gets all of the memory, and a share that is off the step or too small is refused
// when it is prepared. There is no capacity "compute", because the compute of a share is
// in proportion to its memory.
func migCapacities(a Amounts) Capacities {
	return Capacities{v1alpha1.CapacityMemory: {Value: a.Memory}}
}
