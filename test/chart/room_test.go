// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestTheControllerOfRoomIsOffByDefaultAndConfined(t *testing.T) {
	for _, m := range mustRender(t, cluster{}, "").manifests {
		if strings.Contains(m, "gpu-dra-driver-room") {
			t.Errorf("it is off, and rendered:\n%s", m)
		}
	}
	for _, apis := range [][]string{nil, {"security.openshift.io/v1"}} {
		pod := find[appsv1.Deployment](t, mustRender(t, cluster{apis: apis}, "room: {enabled: true}"), "Deployment", "gpu-dra-driver-room").Spec.Template.Spec
		own := pod.Containers[0].SecurityContext
		if !*pod.SecurityContext.RunAsNonRoot || (pod.SecurityContext.RunAsUser == nil) != (apis != nil) || !*own.ReadOnlyRootFilesystem || *own.AllowPrivilegeEscalation ||
			own.Capabilities.Drop[0] != "ALL" || len(pod.Volumes) > 0 {
			t.Errorf("OpenShift %t: %+v, %+v", apis != nil, pod.SecurityContext, own)
		}
	}
}
