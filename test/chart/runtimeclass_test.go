// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"
)

func TestARuntimeClassOnRequestOnly(t *testing.T) {
	count := func(values string) int {
		found := 0
		for _, m := range mustRender(t, cluster{}, values).manifests {
			if kindOf(t, m) == "RuntimeClass" {
				found++
			}
		}
		return found
	}
	// The GPU operator has a class of that name.
	if got := count(""); got != 0 {
		t.Errorf("%d RuntimeClasses by default, want none", got)
	}
	class := find[nodev1.RuntimeClass](t, mustRender(t, cluster{}, "runtimeClass: {create: true}"), "RuntimeClass", "nvidia")
	if class.Handler != "runc" {
		t.Errorf("handler %q, want runc, which every node has", class.Handler)
	}
	class = find[nodev1.RuntimeClass](t, mustRender(t, cluster{}, "runtimeClass: {create: true, name: gpu, handler: crun}"), "RuntimeClass", "gpu")
	if class.Handler != "crun" {
		t.Errorf("handler %q, want crun", class.Handler)
	}
	for _, values := range []string{"runtimeClass: {create: true, handler: ''}", "runtimeClass: {create: true, name: Nvidia}"} {
		if _, err := render(t, cluster{}, values); err == nil {
			t.Errorf("%s is not refused", values)
		}
	}
}
