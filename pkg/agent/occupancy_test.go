// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvmlsim"
)

func TestAgentHandsOutAGPUWhenTheProcessOnItHasEnded(t *testing.T) {
	t.Parallel()
	wanted := claimFor("wanted", "gpu-1b-00")
	n := newNode(t, wanted)
	a := n.start(t)
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	// A process that no claim knows of, as after a forced deletion.
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	process := exec.CommandContext(ctx, "sleep", "1000")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := sim.AddProcess(0, nvmlsim.Process{PID: process.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	results, err := a.agent.kubelet.now().PrepareResourceClaims(short, []*resourceapi.ResourceClaim{wanted})
	if err != nil {
		t.Fatal(err)
	}
	if got := results["uid-wanted"].Err; !errors.Is(got, gpu.ErrInUse) || !strings.Contains(got.Error(), fmt.Sprintf("process %d", process.Process.Pid)) {
		t.Errorf("error %v, want %v that names process %d", got, gpu.ErrInUse, process.Process.Pid)
	}
	kill()
	_ = process.Wait() // it was killed
	if got := a.prepare(t, wanted)["uid-wanted"]; got.Error != "" {
		t.Error(got.Error)
	}
}

func TestAGPUThatIsLostWithoutAnEventIsNotPrepared(t *testing.T) {
	t.Parallel()
	wanted := claimFor("wanted", "gpu-1b-00")
	n := newNode(t, wanted)
	a := n.start(t)
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	index := 0
	if err := sim.FailCalls(nvmlsim.CallFault{Method: "DeviceGetMemoryInfo", GPU: &index, Return: 15}); err != nil {
		t.Fatal(err)
	}
	if got := a.prepare(t, wanted)["uid-wanted"]; !strings.Contains(got.Error, gpu.ErrLost.Error()) {
		t.Errorf("error %q, want %v", got.Error, gpu.ErrLost)
	}
}

func TestThePodsOfAClaimAreReadFromTheAPIServer(t *testing.T) {
	t.Parallel()
	object := claimFor("c", "gpu-1b-00")
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
