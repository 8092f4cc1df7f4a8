package catalog

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// monitors gives the device through which monitoring agents see all GPUs of the
// node, if that is offered or held and there is something to see.
//
// It has no taint, as those who watch GPUs watch unhealthy ones too, and neither
// counters nor capacity: the scheduler charges these for admin access as for any
// other, and would not let an agent onto a node whose GPUs are all in use. Nor
// can it be allocated several times: with admin access a device is given to
// anybody whoever else has it.
func (c Catalog) monitors(node gpu.Node, held Held) []resourceapi.Device {
	name := kind.Name{Kind: kind.Monitor}.String()
	if _, taken := held[name]; !c.Offer.Monitor && !taken || len(node.GPUs) == 0 {
		return nil
	}
	return []resourceapi.Device{{Name: name, Attributes: monitorAttributes(node)}}
}

func monitorAttributes(node gpu.Node) attributes {
	a := attributes{}
	a.name(v1alpha1.AttributeType, v1alpha1.DeviceTypeMonitor)
	a.version(v1alpha1.AttributeDriverVersion, node.DriverVersion)
	return a
}
