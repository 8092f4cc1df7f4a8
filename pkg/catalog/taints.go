// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/use"
)

// taints returns the taints of a published device. There is one for each problem of its GPU
// that does not admit the device's use, one with the withdrawn word of the offer unless that
// is empty, and one if an administrator has taken the GPU out of use.
//
// A withdrawn device is published only because claims hold it. Without the taint,
// another claim could be allocated a share that is released, and lose its device, or
// find it allocated in another form, when the last prepared claim ends.
func (c Catalog) taints(g use.GPU, name kind.Name, sharing use.Sharing, withdrawn string) []resourceapi.DeviceTaint {
	var taints, external []resourceapi.DeviceTaint
	for _, p := range use.Check(g, c.inputs.Shares.MPS, name, sharing) {
		switch {
		case p.TaintKey == "":
		case p.Aspect == use.External:
			external = append(external, taint(p.TaintKey, p.TaintValue))
		default:
			taints = append(taints, taint(p.TaintKey, p.TaintValue))
		}
	}
	if withdrawn != "" {
		taints = append(taints, taint(v1alpha1.TaintWithdrawn, withdrawn))
	}
	if g.Cordoned && name.OnGPU() {
		taints = append(taints, taint(v1alpha1.TaintCordoned, v1alpha1.CordonedByAdministrator))
	}
	for _, value := range c.inputs.InUse.valuesFor(g.GPU, name) {
		external = append(external, taint(v1alpha1.TaintInUse, value))
	}
	return append(taints, external...)
}

// valuesFor returns the values for a device in ascending order.
func (u InUse) valuesFor(g gpu.GPU, name kind.Name) []string {
	var values []string
	for used, value := range u {
		if used.Address == name.Address && (used == name || !kind.Apart(g.MIG, used, name)) && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}

func taint(key, value string) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}
