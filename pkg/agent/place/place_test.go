// SPDX-License-Identifier: Apache-2.0

package place

import (
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// MicroK8s has the longest known kubelet directory.
func TestSocketPathsFitTheLongestKubeletDirectory(t *testing.T) {
	pod := Instance("ae8f18e9-7255-47e1-a15f-b378434bae11")
	if pod == Instance("0f0f18e9-7255-47e1-a15f-b378434bae11") {
		t.Error("two agents of a node have one name")
	}
	socket := filepath.Join("/var/snap/microk8s/common/var/lib/kubelet/plugins/gpu.nvidia.com", "dra-"+string(pod)+".sock")
	if len(socket) > 107 {
		t.Errorf("%s has %d bytes, at most 107 are allowed", socket, len(socket))
	}
	// The patterns match only this driver's agents: NVIDIA's own driver has whole UIDs.
	patterns := Place{DriverName: "gpu.nvidia.com", DataDir: filepath.Dir(socket), RegistryDir: "/registry"}.socketPatterns()
	for name, ours := range map[string]bool{
		socket: true,
		filepath.Join("/registry", kubeletplugin.RollingUpdateRegistrarSocketFile("/registry", "gpu.nvidia.com", pod)): true,
		filepath.Join(filepath.Dir(socket), "dra.sock"):                                                                false,
		filepath.Join(filepath.Dir(socket), "dra-ae8f18e9-7255-47e1-a15f-b378434bae11.sock"):                           false,
	} {
		matches := slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, err := filepath.Match(pattern, name)
			must(t, err)
			return ok
		})
		if matches != ours {
			t.Errorf("%s is one of our sockets: %v, want %v", name, matches, ours)
		}
	}
}

var must = require.NoError
