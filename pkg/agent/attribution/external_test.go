// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// After a forced deletion the kubelet lists the pod no more, and later forgets its devices.
func TestADeviceOfAPluginIsInUseUntilItsPodHasEnded(t *testing.T) {
	listed := []gpu.ExternalAllocation{{Device: "GPU-1", Pod: "team/a"}, {Device: "GPU-2", Pod: "team/b"}}
	given := map[string][]types.UID{"GPU-1": {"uid-a"}, "GPU-2": {"uid-b"}}
	var unread, unknown error
	living := map[types.UID]bool{}
	e := &External{
		List: func(context.Context) ([]gpu.ExternalAllocation, error) { return listed, nil },
		Pods: func() (map[string][]types.UID, error) {
			if unread != nil {
				return nil, unread
			}
			pods := map[string][]types.UID{}
			for device, of := range given {
				pods[device] = append([]types.UID{}, of...)
			}
			return pods, nil
		},
		Lives: func(pod types.UID) (int, bool, error) { return 0, living[pod], unknown },
	}
	want := func(when string, want ...gpu.ExternalAllocation) {
		t.Helper()
		got, err := e.ExternalAllocations(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, allocations (-want +got):\n%s", when, err, diff)
		}
	}
	want("before the containers start", listed...)
	living = map[types.UID]bool{"uid-a": true, "uid-b": true}
	want("while they run", listed...)
	listed = listed[1:]
	forced := gpu.ExternalAllocation{Device: "GPU-1", Pod: "uid-a"}
	want("after the forced deletion", forced, listed[0])
	delete(given, "GPU-1")
	want("when the kubelet has forgotten the pod", forced, listed[0])
	unread = errors.New("no file")
	want("without the kubelet's file", forced, listed[0])
	living["uid-a"] = false
	unknown = errors.New("no cgroups")
	want("without cgroups", forced, listed[0])
	unknown = nil
	want("after the end of the pod", listed[0])
	living["uid-a"] = true
	want("for another pod", listed[0])
	unread, listed = nil, nil
	want("after the end of both, one of which lives", gpu.ExternalAllocation{Device: "GPU-2", Pod: "uid-b"})
	e.List = func(context.Context) ([]gpu.ExternalAllocation, error) { return nil, gpu.ErrNotReady }
	_, err := e.ExternalAllocations(t.Context())
	require.Error(t, "ExternalAllocations", err, gpu.ErrNotReady)
}
