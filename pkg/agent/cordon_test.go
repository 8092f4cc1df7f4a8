// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// No rule of the cluster selects the devices of a layout to come.
func TestACordonCoversTheDevicesThatAGPUGetsLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.nameSlices(t)
	n.Supervisor = ""
	n.setConfigs(t, pools)
	cordon := func(value string) {
		t.Helper()
		node, err := n.client.CoreV1().Nodes().Get(t.Context(), n.NodeName, metav1.GetOptions{})
		if err == nil {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationCordoned, value)
			_, err = n.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tainted := func(count, want int) {
		t.Helper()
		n.shows(t, func(devices map[string]resourceapi.Device) bool {
			of := 0
			for name, d := range devices {
				isTainted := len(d.Taints) == 1 && d.Taints[0] == resourceapi.DeviceTaint{Key: v1alpha1.TaintCordoned, Value: v1alpha1.CordonedByAdministrator, Effect: resourceapi.DeviceTaintEffectNoSchedule}
				if isTainted != (want > 0 && strings.HasPrefix(name, "gpu-1b-00")) {
					return false
				}
				if isTainted {
					of++
				}
			}
			return len(devices) == count && of == want
		})
	}
	n.pick(t, "training")
	cordon("evil, gpu-43-00-ts,gpu-1b-00")
	n.start(t)
	tainted(8, 1)
	n.pick(t, "inference")
	tainted(8+8*7, 1+7)
	cordon("")
	tainted(8+8*7, 0)
}
