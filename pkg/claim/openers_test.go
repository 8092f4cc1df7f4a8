// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// A monitor has no context, so NVML lists no process.
func TestAMIGDeviceThatCannotBeDestroyedNamesItsOpeners(t *testing.T) {
	monitor := gpu.Task{Command: "dcgm", PodUID: "pod-dcgm"}
	for name, c := range map[string]struct {
		device, gpu map[int]gpu.Task
		want        string
	}{
		"a pod":                 {map[int]gpu.Task{17: monitor}, map[int]gpu.Task{99: {}}, ": it is open in process 17 of another pod; see http"},
		"a process of the host": {map[int]gpu.Task{17: {Command: "top"}}, nil, `: it is open in process 17 of the host (command "top"); see http`},
		"several":               {map[int]gpu.Task{4: {}, 3: {}, 2: {}, 5: {}, 1: {}}, nil, ": it is open in process 1, process 2, process 3, 2 more; see http"},
		"only the GPU":          {nil, map[int]gpu.Task{17: monitor}, ": the GPU is open in process 17 of another pod; see http"},
		"pods of the GPU's other claims, and MPS": {
			nil, map[int]gpu.Task{17: {PodUID: "pod-other"}, 18: {Command: "nvidia-cuda-mps", OnHost: true}}, `"ERROR_IN_USE"; see http`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMIGWorld(t, t.TempDir(), "dgx-h100")
			m := w.start()
			held, other := newClaim("cut", h100+"-mig-1g-10gb-0"), newClaim("other", h100+"-mig-1g-10gb-1")
			other.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "other", UID: "pod-other"}}
			for _, claim := range []*resourceapi.ResourceClaim{held, other} {
				must(t, errOf(m.Prepare(once(), claim)))
			}
			st, err := w.sim.State()
			must(t, err)
			made := st.GPUs[0].Instances[0]
			w.openers = map[string]map[int]gpu.Task{
				fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", w.minor(0, fmt.Sprintf("gi%d/ci0/access", made.ID))): c.device, "/dev/nvidia0": c.gpu,
			}
			must(t, w.sim.FailCalls(nvmlsim.CallFault{Method: "ComputeInstanceDestroy", Return: vendor.ERROR_IN_USE}))
			err = m.Unprepare(once(), held.UID)
			if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			must(t, w.sim.ClearFaults())
			must(t, m.Unprepare(once(), held.UID))
		})
	}
}
