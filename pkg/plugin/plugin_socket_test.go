package plugin

import (
	"path/filepath"
	"testing"
)

// The longest of the kubelet's folders that are known: MicroK8s'.
func TestSocketsFitBelowTheLongestFolderOfAKubelet(t *testing.T) {
	pod := instance("ae8f18e9-7255-47e1-a15f-b378434bae11")
	if pod == instance("0f0f18e9-7255-47e1-a15f-b378434bae11") {
		t.Error("two agents of a node have one name")
	}
	socket := filepath.Join("/var/snap/microk8s/common/var/lib/kubelet/plugins/gpu.nvidia.com", "dra-"+string(pod)+".sock")
	if len(socket) > 107 {
		t.Errorf("%s has %d bytes, at most 107 are allowed", socket, len(socket))
	}
}
