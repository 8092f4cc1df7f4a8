// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

// hardware reads the processes on GPUs and the memory limits of cgroups.
type hardware interface {
	claim.Hardware
	MemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string) (gpu.MemoryLimit, error)
}

// Occupancy reads which processes, pods and claims use a GPU. It reads the GPU's processes
// from NVML, whether their pods live from the kernel, and the pods of a claim from the
// kubelet, the kernel and the API server. The processes of simulated GPUs have PIDs of real
// processes. It logs if the agent does not see the processes of pods.
func Occupancy(ctx context.Context, driver hardware, client kubernetes.Interface, consumers Consumers, limited containerlimits.Folder) *claim.Occupancy {
	o := &claim.Occupancy{Hardware: driver, Task: consumers.Tasks.Task, Pods: podsOf(client), Consumers: consumers.Of, KubeletPods: consumers.Kubelet.Pods, Admitted: admitted(limited, driver)}
	if consumers.Groups == nil {
		klog.FromContext(ctx).Info("Cannot see the processes of pods, only NVML shows use", "err", consumers.blind,
			"effect", "a container that does not compute at the moment does not keep its GPU after a forced deletion", "remedy", "run the agent with hostPID: true")
		return o
	}
	o.Lives = consumers.Lives
	o.EndStub = func(ctx context.Context, pid int, pod types.UID) {
		logger := klog.FromContext(ctx).WithValues("pid", pid, "podUID", pod)
		if ended, err := consumers.Proc.EndStub(pid, string(pod)); err != nil {
			logger.Error(err, "Cannot end a process of a stopped pod")
		} else if ended {
			logger.Info("Ended a process that never started its container")
		}
	}
	return o
}

// admitted returns a function that reads the IDs of the containers with a memory limit. A hook
// has set it, and the driver still has it: a reload or an administrator ends limits.
func admitted(folder containerlimits.Folder, driver hardware) func(ctx context.Context, device string) ([]string, error) {
	return func(ctx context.Context, device string) (ids []string, err error) {
		all, err := folder.Admitted(device)
		errs := []error{err}
		for _, l := range all {
			_, id := cgroup.ContainerOf(l.Cgroup)
			if id == "" {
				continue
			}
			address, err := gpu.ParsePCIAddress(l.GPU)
			errs = append(errs, err)
			limit, err := driver.MemoryLimit(ctx, address, l.Cgroup)
			if !errors.Is(err, gpu.ErrNotFound) { // the container has not ended
				errs = append(errs, err)
			}
			if limit.Bytes != gpu.NoMemoryLimit {
				ids = append(ids, id)
			}
		}
		return ids, errors.Join(errs...)
	}
}

// Consumers reads the pods on the node with devices of a claim. The containers with a device
// have a file below DriverDir mounted, in the folder that Metadata returns.
//
// A claim can be reserved for a PodGroup, whose pods only the right to read all pods of the
// cluster would show; and the API server forgets a pod whose deletion was forced.
type Consumers struct {
	Proc procfs.Root
	// Tasks reads the processes, and remembers ended ones.
	Tasks     *procfs.Seen
	DriverDir string
	Metadata  func(namespace, claim string) string
	// Groups are the cgroups of pods; nil if they are not visible.
	Groups *cgroup.Pods
	// Kubelet has the pods of the claims that the kubelet knows.
	Kubelet podresources.Checkpoint

	blind error // why Groups is nil
}

// NewConsumers returns the consumers of a node. host has the proc of the host's processes.
// kubelet is the kubelet's folder, and driver the agent's, as the host sees them.
func NewConsumers(host procfs.Root, kubelet, driver string, metadata func(namespace, claim string) string) Consumers {
	c := Consumers{
		Proc: host, Tasks: &procfs.Seen{Root: host}, DriverDir: driver, Metadata: metadata,
		Kubelet: podresources.Checkpoint(filepath.Join(string(host), "proc/1/root", kubelet, podresources.CheckpointName)),
	}
	sees, err := c.Proc.SeesPods()
	if err == nil && sees {
		c.Groups, err = cgroup.FindPods(string(host))
	}
	if err != nil {
		c.Groups, c.blind = nil, err
	}
	return c
}

// Lives reports whether a pod has a process that has not ended. Groups is not nil.
func (c Consumers) Lives(pod types.UID) (pid int, lives bool, err error) {
	return c.Groups.Lives(string(pod))
}

// Of returns the pods of each claim, by its UID. Source: the mounts of containers.
func (c Consumers) Of(claims []claim.Ref) (map[types.UID][]types.UID, error) {
	if c.Groups == nil {
		return nil, nil
	}
	containers, err := c.Groups.Containers()
	if err != nil {
		return nil, err
	}
	folder, err := c.Proc.Source(c.DriverDir)
	if err != nil {
		return nil, err
	}
	sources := make([]procfs.Source, len(claims))
	for i, ref := range claims {
		sources[i] = folder.Below(c.Metadata(ref.Namespace, ref.Name))
	}
	byClaim := make(map[types.UID][]types.UID, len(claims))
	var errs []error
	for _, container := range containers {
		mounted, err := c.Proc.Mounted(container.PID, sources)
		errs = append(errs, err)
		for i, has := range mounted {
			pods, pod := byClaim[claims[i].UID], types.UID(container.PodUID)
			if has && !slices.Contains(pods, pod) {
				byClaim[claims[i].UID] = append(pods, pod)
			}
		}
	}
	for _, pods := range byClaim {
		slices.Sort(pods)
	}
	return byClaim, errors.Join(errs...)
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
