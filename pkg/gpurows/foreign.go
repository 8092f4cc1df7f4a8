// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// ForeignProcess is a report that a pod without a claim computes on a device of a claim.
type ForeignProcess struct {
	Node, Device string
	// Message is the agent's sentence about the process.
	Message string
}

// ForeignProcesses returns the reports of foreign processes on the devices of a claim.
func (c *Cluster) ForeignProcesses(claim *resourceapi.ResourceClaim) []ForeignProcess {
	var all []ForeignProcess
	for _, device := range claim.Status.Devices {
		found := meta.FindStatusCondition(device.Conditions, v1alpha1.ConditionForeignProcess)
		if device.Driver == c.Driver && found != nil && found.Status == metav1.ConditionTrue {
			all = append(all, ForeignProcess{device.Pool, device.Device, found.Message})
		}
	}
	return all
}

// IsForeignProcess reports whether a taint says that a pod without a claim computes on the
// device.
func IsForeignProcess(taint resourceapi.DeviceTaint) bool {
	return taint.Key == v1alpha1.TaintInUse && taint.Value == v1alpha1.InUseTaintForeignProcess
}
