// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

// Occupancy reads which processes, pods and claims use a GPU. It reads the GPU's processes
// from NVML, their pods and the living pods from the kernel, and the pods of a claim from
// the API server. The processes of simulated GPUs have PIDs of real processes. It logs if
// the agent does not see the processes of pods.
func Occupancy(ctx context.Context, hardware claim.Hardware, client kubernetes.Interface, consumers Consumers, limited containerlimits.Folder) *claim.Occupancy {
	o := &claim.Occupancy{Hardware: hardware, Task: consumers.Proc.Task, Pods: podsOf(client), Consumers: consumers.Of, Admitted: admitted(limited)}
	sees, err := consumers.Proc.SeesPods()
	if err != nil || !sees {
		klog.FromContext(ctx).Info("Cannot see the processes of pods, only NVML shows use", "err", err,
			"effect", "a container that does not compute at the moment does not keep its GPU after a forced deletion", "remedy", "run the agent with hostPID: true")
		return o
	}
	o.LivingPods = consumers.living
	return o
}

// admitted returns a function that reads the IDs of the containers whose memory a hook has
// limited.
func admitted(folder containerlimits.Folder) func(device string) ([]string, error) {
	return func(device string) ([]string, error) {
		all, err := folder.Admitted(device)
		ids := make([]string, len(all))
		for i, l := range all {
			_, ids[i] = cgroup.ContainerOf(l.Cgroup)
		}
		return slices.DeleteFunc(ids, func(id string) bool { return id == "" }), err
	}
}

// Consumers reads the pods on the node with devices of a claim. The containers with a device
// have a file below DriverDir mounted, in the folder that Metadata returns.
//
// The kernel is the source because no other one has all: a claim can be reserved for a
// PodGroup, whose pods only the right to read all pods of the cluster would show; and the
// API server and the kubelet forget a pod whose deletion was forced.
type Consumers struct {
	Proc      procfs.Root
	DriverDir string
	Metadata  func(namespace, claim string) string
}

// Of returns the pods of each claim, by its UID.
func (c Consumers) Of(claims []claim.Ref) (map[types.UID][]types.UID, error) {
	pods, err := c.Proc.Pods()
	if err != nil {
		return nil, err
	}
	return c.among(pods, claims)
}

func (c Consumers) living() (claim.LivingPods, error) {
	pods, err := c.Proc.Pods()
	return claim.LivingPods{PIDs: pods.Living(), Consumers: func(claims []claim.Ref) (map[types.UID][]types.UID, error) {
		return c.among(pods, claims)
	}}, err
}

func (c Consumers) among(pods procfs.Pods, claims []claim.Ref) (map[types.UID][]types.UID, error) {
	folder, err := c.Proc.Source(c.DriverDir)
	if err != nil {
		return nil, err
	}
	sources := make([]procfs.Source, len(claims))
	for i, ref := range claims {
		sources[i] = folder.Below(c.Metadata(ref.Namespace, ref.Name))
	}
	found, err := pods.With(sources)
	byClaim := make(map[types.UID][]types.UID, len(claims))
	for i, of := range found {
		for _, uid := range of {
			byClaim[claims[i].UID] = append(byClaim[claims[i].UID], types.UID(uid))
		}
	}
	return byClaim, err
}

func podsOf(client kubernetes.Interface) func(context.Context, claim.Ref) ([]types.UID, error) {
	get := GetClaim(client)
	return func(ctx context.Context, ref claim.Ref) ([]types.UID, error) {
		object, err := get(ctx, ref)
		if object == nil || err != nil {
			return nil, err
		}
		return claim.PodsOf(object), nil
	}
}

// GetClaim returns a function that reads a claim from the API server; nil if it is gone.
func GetClaim(client kubernetes.Interface) func(context.Context, claim.Ref) (*resourceapi.ResourceClaim, error) {
	return func(ctx context.Context, ref claim.Ref) (*resourceapi.ResourceClaim, error) {
		object, err := client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		case object.UID != ref.UID:
			return nil, nil
		}
		return object, nil
	}
}
