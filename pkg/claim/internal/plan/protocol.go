// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// hasNamespaces reports whether the MPS daemon of a device can have namespaces.
func (d deviceRequest) hasNamespaces() bool {
	return d.gpu.HasNamespaces(d.name)
}

// namespaceName returns the name of the MPS namespace for the clients of a device. No
// other claim has it, before or later.
func namespaceName(claim types.UID, shareID *types.UID, t share.Terms) string {
	id := claim
	if t.Share != nil && shareID != nil {
		id = *shareID
	}
	return strings.ToLower(strings.ReplaceAll(string(id), "-", ""))
}

// following returns the plan with the MPS protocol of the other shares of its devices.
// These shares have a daemon in common. So after an update of the driver, a device gets
// namespaces when its last share without one has ended. The protocol of a claim whose
// record is lost is in its CDI spec. A lost claim without it has protocol 2, or is not a
// client of the daemon at all: then any other claim decides. The error wraps [gpu.ErrInUse]
// if a configuration requires more than that protocol enforces.
func (p Plan) following(others []Holder) (Plan, error) {
	p.Devices = slices.Clone(p.Devices)
	for i, device := range p.Devices {
		if device.MPS == nil {
			continue
		}
		holder, namespaces := protocolOf(others, device)
		if holder == nil {
			continue
		}
		namespace := ""
		if namespaces {
			namespace = namespaceName(p.Claim.UID, device.ShareID, device.Terms)
		}
		p.Devices[i] = device.inNamespace(namespace)
		if _, held := holdsCompute(p.Devices[i].Terms); !held {
			return p, Refuse(fmt.Errorf("device %s: require: %w with MPS shares that were prepared without namespaces; they hold compute less strictly than the ShareConfig requires; see %s",
				device.Name, gpu.ErrInUse, gpu.Page("docs/user/events.md#when-a-share-does-not-start")), "holder", holder.Claim)
		}
	}
	return p, nil
}

// inNamespace returns the device with its MPS clients in a namespace, "" for none.
func (d Device) inNamespace(namespace string) Device {
	client := *d.MPS
	client.Namespace = namespace
	d.MPS = &client
	return d
}

// protocolOf returns a claim that decides the protocol of the clients of a device. It
// also returns whether they have namespaces. It returns nil if no claim has clients
// there. A claim with a lost record, which may have none, decides only alone.
func protocolOf(others []Holder, device Device) (decides *Holder, namespaces bool) {
	for i, other := range others {
		j := slices.IndexFunc(other.Devices, func(d Device) bool { return d.MPS != nil && d.MPS.Daemon == device.MPS.Daemon })
		if j >= 0 {
			return &others[i], other.Devices[j].MPS.Namespace != ""
		}
		if slices.Contains(other.Daemons, device.MPS.Daemon) {
			decides = &others[i]
		}
	}
	return decides, false
}
