// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestTheControllerOfRoomNeedsDeviceTaintRules(t *testing.T) {
	for version, taken := range map[string]bool{"v1.34.2": false, "v1.36.9-gke.1": false, "v1.37.0-beta.0": true, "v1.37.2+k3s1": true} {
		_, err := render(t, cluster{version: version}, "room: {enabled: true}")
		if refused := err != nil && strings.Contains(err.Error(), "room.enabled: true needs Kubernetes 1.37") && strings.Contains(err.Error(), version); refused == taken || taken && err != nil {
			t.Errorf("Kubernetes %s: %v", version, err)
		}
	}
}

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
