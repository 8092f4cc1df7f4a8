// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// limiting is a driver with the limits of cgroups. It does not answer about others.
type limiting map[string]gpu.MemoryLimit

func (limiting) Check(context.Context, gpu.PCIAddress) error { return nil }

func (limiting) Processes(context.Context, gpu.PCIAddress) ([]gpu.Process, error) { return nil, nil }

func (l limiting) MemoryLimit(_ context.Context, _ gpu.PCIAddress, folder string) (gpu.MemoryLimit, error) {
	limit, ok := l[folder]
	if !ok {
		return limit, gpu.ErrTimeout
	}
	return limit, nil
}

// The kernel shows the container of a process by the same ID.
func TestTheContainersThatTheHookHasAdmitted(t *testing.T) {
	const pod = "12345678-1234-1234-1234-123456789abc"
	for name, group := range map[string]string{
		"cgroupfs": "/kubepods/burstable/pod" + pod + "/c0ffee",
		"systemd":  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-c0ffee.scope",
	} {
		t.Run(name, func(t *testing.T) {
			folder := containerlimits.Folder(filepath.Join(t.TempDir(), "limits"))
			for device, of := range map[string]string{"a": group, "no-pod": "/system.slice/c0ffee"} {
				must(t, folder.Open(device))
				_, err := folder.Admit(device, containerlimits.Limit{Cgroup: "/sys/fs/cgroup" + of, ID: 7, GPU: "0000:1b:00.0", Bytes: 1}, 1)
				must(t, err)
			}
			driver := limiting{"/sys/fs/cgroup" + group: {Bytes: 1}}
			got, err := admitted(folder, driver)(t.Context(), "a")
			_, of := cgroup.ContainerOf(group + "/below")
			if diff := cmp.Diff([]string{of}, got); err != nil || diff != "" || of != "c0ffee" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if got, err := admitted(folder, driver)(t.Context(), "no-pod"); err != nil || len(got) != 0 {
				t.Errorf("%q, %v for a container of no pod, want none", got, err)
			}
			driver["/sys/fs/cgroup"+group] = gpu.MemoryLimit{Bytes: gpu.NoMemoryLimit}
			if got, err := admitted(folder, driver)(t.Context(), "a"); err != nil || len(got) != 0 {
				t.Errorf("%q, %v after the driver has lost the limit, want none", got, err)
			}
			delete(driver, "/sys/fs/cgroup"+group)
			_, err = admitted(folder, driver)(t.Context(), "a")
			require.Error(t, "a driver that does not answer", err, gpu.ErrTimeout)
		})
	}
}

// A program in a container can have its own mounts, as one that starts containers.
func TestTheFirstProcessOfAContainerShowsItsClaim(t *testing.T) {
	proc := newTasks(t)
	proc.add(8, podUID(1), "id-1", "worker")
	proc.add(7, podUID(1), "id-1", "worker")
	proc.mounts(7, "gang")
	proc.add(6, podUID(2), "id-2", "worker")
	proc.add(9, podUID(2), "id-2", "worker")
	proc.mounts(9, "gang")
	proc.add(5, podUID(3), "id-3", "worker")
	proc.add(10, podUID(3), "id-4", "worker")
	proc.mounts(10, "gang")
	gang, other := claim.Ref{Namespace: "team", Name: "gang", UID: "uid-gang"}, claim.Ref{Namespace: "team", Name: "other", UID: "uid-other"}
	got, err := proc.consumers().Of([]claim.Ref{other, gang})
	if diff := cmp.Diff(map[types.UID][]types.UID{gang.UID: {podUID(1), podUID(3)}}, got); err != nil || diff != "" {
		t.Errorf("%v, consumers (-want +got):\n%s", err, diff)
	}
	blind := proc.consumers()
	blind.Groups = nil
	if got, err := blind.Of([]claim.Ref{gang}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v without the processes of pods", got, err)
	}
}

func TestThePodsOfAClaimAreReadFromTheAPIServer(t *testing.T) {
	t.Parallel()
	object := reservedFor()
	object.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "a", UID: "pod-a"}, {APIGroup: "example.com", Resource: "jobs", Name: "b", UID: "job-b"}, {Resource: "pods", Name: "c", UID: "pod-c"},
	}
	client := fake.NewClientset(object)
	ref := claim.Ref{Namespace: object.Namespace, Name: object.Name, UID: object.UID}
	for name, c := range map[string]struct {
		ref  claim.Ref
		want []types.UID
	}{
		"that is there":           {ref, []types.UID{"pod-a", "pod-c"}},
		"that is gone":            {claim.Ref{Namespace: "team", Name: "gone", UID: "uid-gone"}, nil},
		"whose name another took": {claim.Ref{Namespace: ref.Namespace, Name: ref.Name, UID: "uid-of-before"}, nil},
	} {
		got, err := podsOf(client)(t.Context(), c.ref)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("a claim %s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := podsOf(client)(t.Context(), ref); err == nil {
		t.Error("want an error from an API server that does not answer")
	}
}
