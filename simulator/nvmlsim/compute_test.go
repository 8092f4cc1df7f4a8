// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// A container with a MIG device has the nodes of its GPU and of two capabilities.
func TestAProcessSeesTheMIGDevicesOfItsNodes(t *testing.T) {
	s, lib := newTestSim(t, "dgx-h100")
	d := migOn(t, lib, 0)
	var uuids []string
	for _, start := range []uint32{0, 1} {
		spanning(t, place(t, d, nvml.GPU_INSTANCE_PROFILE_1_SLICE, start, 1), nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE)
	}
	st, err := s.State()
	noError(t, err)
	second := st.GPUs[0].Instances[1]
	uuids = append(uuids, second.Compute[0].UUID, s.node.gpus[1].uuid)

	root := t.TempDir()
	noError(t, os.MkdirAll(filepath.Join(root, "dev/nvidia-caps"), 0o755))
	visible := func() []string {
		t.Helper()
		devices, err := s.VisibleDevices(root, func(int, int) bool { return true })
		noError(t, err)
		var found []string
		for _, d := range devices {
			found = append(found, d.UUID)
		}
		return found
	}
	for _, step := range []struct {
		nodes []string
		want  []string
	}{
		{[]string{"dev/nvidia0", "dev/nvidia1"}, nil},
		{[]string{"dev/nvidiactl", "dev/nvidia-uvm"}, uuids[1:]},
		{[]string{capNode(instanceCap(0, second.ID))}, uuids[1:]},
		{[]string{capNode(computeCap(0, second.ID, second.Compute[0].ID))}, uuids},
	} {
		for _, node := range step.nodes {
			noError(t, os.Link(filepath.Join(s.Root(), node), filepath.Join(root, node)))
		}
		if diff := cmp.Diff(step.want, visible()); diff != "" {
			t.Errorf("with %v too (-want +got):\n%s", step.nodes, diff)
		}
	}
	if total, free, err := s.MemoryInfo(os.Getpid(), uuids[0]); err != nil || total != 9984<<20 || free != total {
		t.Errorf("memory of the MIG device: %d of %d, %v", free, total, err)
	}
}
