package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// taints are those of the devices of a GPU.
type taints struct{ whole, parts, turns []resourceapi.DeviceTaint }

// taintsOf gives the taints of a GPU that is unhealthy unless the reason is
// empty. In MIG mode it runs nothing as a whole, but its parts do.
func taintsOf(g gpu.GPU, unhealthy string) taints {
	var all []resourceapi.DeviceTaint
	if unhealthy != "" {
		all = append(all, taint(v1alpha1.TaintUnhealthy, unhealthy))
	}
	if g.ComputeMode == gpu.ComputeModeProhibited {
		all = append(all, taint(v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintProhibited))
	}
	t := taints{whole: slices.Clone(all), parts: all, turns: slices.Clone(all)}
	if g.MIG.Enabled {
		t.whole = append(t.whole, taint(v1alpha1.TaintMIGMode, v1alpha1.MIGModeTaintEnabled))
		t.turns = append(t.turns, taint(v1alpha1.TaintMIGMode, v1alpha1.MIGModeTaintEnabled))
	}
	if g.ComputeMode == gpu.ComputeModeExclusiveProcess {
		t.turns = append(t.turns, taint(v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintExclusive))
	}
	return t
}

// lastShares gives the taint of a device of the GPU that is shareable only
// because claims hold shares of it; nothing for any other. In a compute mode that
// admits one process another share would be refused when it is prepared.
func (c Catalog) lastShares(g gpu.GPU, device resourceapi.Device) []resourceapi.DeviceTaint {
	switch {
	case device.AllowMultipleAllocations == nil:
		return nil
	case !c.admitsShares(g):
		return []resourceapi.DeviceTaint{taint(v1alpha1.TaintComputeMode, v1alpha1.ComputeModeTaintExclusive)}
	default:
		return withdrawn(!c.Offer.Share, v1alpha1.OfferShare)
	}
}

// lastPart is the same for a MIG device, which may be there at all only because
// claims hold it.
func (c Catalog) lastPart(g gpu.GPU, p part, device resourceapi.Device) []resourceapi.DeviceTaint {
	if p.withdrawn {
		return withdrawn(true, v1alpha1.OfferMIG)
	}
	return c.lastShares(g, device)
}

// withdrawn gives the taint of a device that is published as it is only because
// claims hold it: the word is no longer offered. Without the taint others would
// take what is given back, and a claim of theirs that is not prepared yet when
// the last prepared one ends would find its device gone and given away in another
// form.
func withdrawn(is bool, word string) []resourceapi.DeviceTaint {
	if !is {
		return nil
	}
	return []resourceapi.DeviceTaint{taint(v1alpha1.TaintWithdrawn, word)}
}

// lent gives the taint of a device that a pod has through a device plugin, or
// that cannot be beside one that a pod has; nothing for any other.
func lent(g gpu.GPU, name kind.Name) []resourceapi.DeviceTaint {
	if use.ExternalHolder(g, name) == "" {
		return nil
	}
	return []resourceapi.DeviceTaint{taint(v1alpha1.TaintInUse, v1alpha1.InUseTaintDevicePlugin)}
}

func taint(key, value string) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}
