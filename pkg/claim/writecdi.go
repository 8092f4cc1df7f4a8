package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const stepWriteCDI = "WriteCDI"

// writeCDI lets containers use the devices, so it is the last step of a plan.
type writeCDI struct {
	inventory    Inventory
	cdi          CDI
	partitioning *Partitioning
	monitorNodes func() ([]string, error)
}

// writeCDIResult is the result of writeCDI.
type writeCDIResult struct {
	// IDs are the qualified CDI device IDs, in the order of the devices.
	IDs []string `json:"ids"`
}

func (s writeCDI) begin(context.Context, job, *entry) error { return nil }

func (s writeCDI) do(ctx context.Context, j job, e *entry) error {
	r := j.record
	injections := make([]gpu.Injection, 0, len(r.Devices))
	for _, d := range r.Devices {
		name, err := kind.Parse(d.Device)
		if err != nil {
			return err
		}
		nodes, err := s.deviceNodes(ctx, r, d, name)
		if err != nil {
			return fmt.Errorf("device %s: %w", d.Device, err)
		}
		in := gpu.Injection{ID: d.injectionID(r.Claim.UID, name), DeviceNodes: nodes}
		if name.Kind == kind.MIG {
			made, err := r.partition(d.Device)
			if err != nil {
				return err
			}
			if in.Annotations, err = made.annotate(); err != nil {
				return err
			}
		}
		if d.MPS != nil {
			dirs, err := r.dirs(d.MPS.Daemon)
			if err != nil {
				return fmt.Errorf("device %s: %w", d.Device, err)
			}
			r.clientEdits(d, dirs, &in)
		}
		injections = append(injections, in)
	}
	owner := types.NamespacedName{Namespace: r.Claim.Namespace, Name: r.Claim.Name}
	ids, err := s.cdi.Write(ctx, r.Claim.UID, owner, injections)
	if err != nil {
		return err
	}
	e.Result, err = json.Marshal(writeCDIResult{IDs: ids})
	return err
}

// deviceNodes gives the container paths of all nodes that come with a device.
// Minors change when the driver is loaded anew, so they are looked up and not
// remembered.
func (s writeCDI) deviceNodes(ctx context.Context, r *record, d allocated, name kind.Name) ([]string, error) {
	if name.Kind == kind.Monitor {
		return s.allNodes(ctx)
	}
	g, err := s.inventory.GPU(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	nodes := []string{nodeOf(g)}
	if name.Kind != kind.MIG {
		return nodes, nil
	}
	more, err := s.capabilities(r, d, g)
	return append(nodes, more...), err
}

func nodeOf(g gpu.GPU) string { return fmt.Sprintf("/dev/nvidia%d", g.Minor) }

// allNodes gives those of all GPUs that answer. A container with the node of one
// that has gone would not start.
func (s writeCDI) allNodes(ctx context.Context) ([]string, error) {
	gpus, err := s.inventory.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, g := range gpus {
		nodes = append(nodes, nodeOf(g))
	}
	more, err := s.monitorNodes()
	return append(nodes, more...), err
}

// capabilities gives the device nodes that admit containers to a MIG device.
func (s writeCDI) capabilities(r *record, d allocated, g gpu.GPU) ([]string, error) {
	made, err := r.partition(d.Device)
	if err != nil {
		return nil, err
	}
	if s.partitioning == nil || made.UUID == "" {
		return nil, fmt.Errorf("%w: the MIG device has not been made", gpu.ErrNotFound)
	}
	return s.partitioning.CapabilityNodes(g, made.GPUInstance, made.ComputeInstance)
}

// clientEdits makes containers clients of the device's daemon, with its limits.
// They have its folder at the host's path: NVIDIA wants daemon and clients to
// agree on it.
func (r *record) clientEdits(d allocated, dirs mpsResult, in *gpu.Injection) {
	in.Env = append(in.Env, "CUDA_MPS_PIPE_DIRECTORY="+dirs.Pipe)
	if d.MPS.ThreadPercentage > 0 {
		in.Env = append(in.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", d.MPS.ThreadPercentage))
	}
	clients := []allocated{d}
	if d.Share == nil {
		clients = r.clientsOf(d.MPS.Daemon)
	}
	// A container need not have the devices of all requests, and counts those that
	// it has. Then the ceilings of the daemon, which are the same, do alone.
	counted := !slices.ContainsFunc(clients, func(c allocated) bool { return c.Request != d.Request })
	var limits []string
	for ordinal, c := range clients {
		if counted && c.MPS.MemoryLimit > 0 {
			limits = append(limits, fmt.Sprintf("%d=%dM", ordinal, c.MPS.MemoryLimit/catalog.MemoryStep))
		}
	}
	if len(limits) > 0 {
		in.Env = append(in.Env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+strings.Join(limits, ","))
	}
	in.Mounts = append(in.Mounts,
		gpu.Mount{HostPath: dirs.Pipe, ContainerPath: dirs.Pipe},
		gpu.Mount{HostPath: dirs.Shm, ContainerPath: "/dev/shm"})
}

func (s writeCDI) undo(ctx context.Context, j job, _ entry) error {
	return s.cdi.Remove(ctx, j.Claim.UID)
}

// shareSeparator is in no name of a device.
const shareSeparator = "_"

// injectionID is unique over time, because runtimes may cache what an ID meant.
// One of a part of a device, of which a claim can have several, names the share
// too, and so tells from the spec alone that it is a part.
func injectionID(claim types.UID, device string, share types.UID) string {
	id := string(claim) + "-" + device
	if share != "" {
		id += shareSeparator + string(share)
	}
	return id
}

func (a allocated) injectionID(claim types.UID, name kind.Name) string {
	var share types.UID
	if a.partOf(name) && a.ShareID != nil {
		share = *a.ShareID
	}
	return injectionID(claim, a.Device, share)
}

// cdiDeviceIDs of a record's devices, nil where they are not written.
func (r *record) cdiDeviceIDs() ([]string, error) {
	for _, e := range r.Journal {
		if e.Step != stepWriteCDI || e.State != done {
			continue
		}
		var result writeCDIResult
		if err := json.Unmarshal(e.Result, &result); err != nil || len(result.IDs) != len(r.Devices) {
			return nil, fmt.Errorf("result of %s: %w: %s", e.Step, gpu.ErrCorrupt, e.Result)
		}
		return result.IDs, nil
	}
	return nil, nil
}
