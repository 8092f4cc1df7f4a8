// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// hasNamespaces reports whether the MPS daemon of a device can have namespaces.
func (d deviceRequest) hasNamespaces() bool {
	return use.HasNamespaces(d.gpu, use.Use{Device: d.name, Sharing: use.ByMPS})
}

// namespaceName returns the name of the MPS namespace for the clients of a device. No
// other claim has it, before or later.
func namespaceName(claim types.UID, d journal.Device) string {
	id := claim
	if d.Share != nil && d.ShareID != nil {
		id = *d.ShareID
	}
	return strings.ToLower(strings.ReplaceAll(string(id), "-", ""))
}

// FollowHolders changes the MPS protocol of the plan's shares to the one of the other
// shares of their devices, which have a daemon in common. So after an update of the
// driver, a device gets namespaces when its last share without one has ended. The
// protocol of a claim whose record is lost is in its CDI spec. A lost claim without it has
// protocol 2, or is not a client of the daemon at all: then any other claim decides, or the
// plan's own CDI spec if its record was lost too. FollowHolders returns an error that wraps
// [gpu.ErrInUse] if a configuration requires more than that protocol enforces.
func (p *Plan) FollowHolders(others []journal.Holder) error {
	for i := range p.Record.Devices {
		device := &p.Record.Devices[i]
		if device.MPS == nil {
			continue
		}
		holder, namespaces, sure := protocolOf(others, *device)
		if holder == nil || !sure && p.Record.Adopted {
			continue
		}
		device.MPS.Namespace = ""
		if namespaces {
			device.MPS.Namespace = namespaceName(p.Record.Claim.UID, *device)
		}
		if p.requests[i].checkRequired(*device) != nil {
			return Refuse(fmt.Errorf("device %s: require: %w with MPS shares that were prepared without namespaces, before the driver had them; they hold compute less strictly than the ShareConfig requires, and the GPU changes when the pods of those shares have ended",
				device.Name, gpu.ErrInUse), "holder", holder.Claim)
		}
	}
	return nil
}

// protocolOf returns a claim that decides the protocol of the clients of a device, and
// whether they have namespaces; nil if no claim has clients there. It is not sure of a
// claim with a lost record, which may have none.
func protocolOf(others []journal.Holder, device journal.Device) (decides *journal.Holder, namespaces, sure bool) {
	for i, other := range others {
		j := slices.IndexFunc(other.Devices, func(d journal.Device) bool { return d.MPS != nil && d.MPS.Daemon == device.MPS.Daemon })
		if j >= 0 {
			return &others[i], other.Devices[j].MPS.Namespace != "", true
		}
		if other.Began(journal.StepStartMPS, device.MPS.Daemon) {
			decides = &others[i]
		}
	}
	return decides, false, false
}
