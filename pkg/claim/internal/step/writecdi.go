// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// writeCDI writes the CDI spec, which lets containers use the devices, so it is the
// last step of a plan. The spec is also the witness of a lost record (package
// journal), which is why nothing sweeps it here.
type writeCDI struct{ Options }

func (writeCDI) Name() string { return journal.StepWriteCDI }

func (writeCDI) GPUWide() bool { return false }

func (writeCDI) Needed(*plan.Plan) []string { return []string{""} }

func (writeCDI) Note(context.Context, Work, *journal.Entry) error { return nil }

func (s writeCDI) Do(ctx context.Context, w Work, e *journal.Entry) error {
	r := w.Record
	injections := make([]gpu.Injection, 0, len(r.Devices))
	for _, d := range r.Devices {
		in, err := s.injection(ctx, r, d)
		if err != nil {
			return err
		}
		injections = append(injections, in)
	}
	owner := types.NamespacedName{Namespace: r.Claim.Namespace, Name: r.Claim.Name}
	ids, err := s.CDI.Write(ctx, r.Claim.UID, owner, injections)
	if err != nil {
		return err
	}
	return e.SetResult(journal.Spec{IDs: ids})
}

func (s writeCDI) Undo(ctx context.Context, w Work, _ journal.Entry) error {
	return s.CDI.Remove(ctx, w.Claim.UID)
}

// Lost returns false: the spec of a claim with a lost record is removed when all else
// is undone, because it names the steps to undo.
func (writeCDI) Lost(journal.LostDevice) (string, []byte, bool) { return "", nil, false }

// Leftovers returns none: a spec without a record holds its devices.
func (writeCDI) Leftovers(context.Context) ([]string, error) { return nil, nil }

func (writeCDI) Sweep(context.Context, string, *journal.Others) (bool, error) { return false, nil }

// injection returns what containers need of a device.
func (s writeCDI) injection(ctx context.Context, r *journal.Record, d journal.Device) (in gpu.Injection, err error) {
	name, err := kind.Parse(d.Name)
	if err != nil {
		return in, err
	}
	in.ID = d.InjectionID(r.Claim.UID, name)
	if in.DeviceNodes, err = s.deviceNodes(ctx, r, d, name); err != nil {
		return in, fmt.Errorf("device %s: %w", d.Name, err)
	}
	if name.IsPartition() {
		made, err := r.Partition(d.Name)
		if err != nil {
			return in, err
		}
		if in.Annotations, err = annotate(made); err != nil {
			return in, err
		}
	}
	if d.MPS != nil {
		daemon, err := r.Daemon(d.MPS.Daemon)
		if err != nil {
			return in, fmt.Errorf("device %s: %w", d.Name, err)
		}
		injectClient(r, d, daemon, &in)
	}
	return in, nil
}

// deviceNodes returns the container paths of all device nodes that come with a
// device. Minor numbers change when the driver is loaded anew, so they are read each
// time and not remembered.
func (s writeCDI) deviceNodes(ctx context.Context, r *journal.Record, d journal.Device, name kind.Name) ([]string, error) {
	if name.Kind.Scope() == kind.ScopeNode {
		return s.allNodes(ctx)
	}
	g, err := s.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return nil, err
	}
	nodes := []string{nodeOf(g)}
	if !name.IsPartition() {
		return nodes, nil
	}
	more, err := s.capabilityNodes(r, d, g)
	return append(nodes, more...), err
}

func nodeOf(g gpu.GPU) string { return fmt.Sprintf("/dev/nvidia%d", g.Minor) }

// allNodes returns those of all GPUs that answer. A container with the node of a GPU
// that is gone would not start.
func (s writeCDI) allNodes(ctx context.Context) ([]string, error) {
	gpus, err := s.Inventory.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, g := range gpus {
		nodes = append(nodes, nodeOf(g))
	}
	more, err := s.MonitorNodes()
	return append(nodes, more...), err
}

// capabilityNodes returns the device nodes that admit containers to a MIG device.
func (s writeCDI) capabilityNodes(r *journal.Record, d journal.Device, g gpu.GPU) ([]string, error) {
	made, err := r.Partition(d.Name)
	if err != nil {
		return nil, err
	}
	if s.Partitioning == nil || made.UUID == "" {
		return nil, fmt.Errorf("%w: the MIG device has not been made", gpu.ErrNotFound)
	}
	return s.Partitioning.CapabilityNodes(g, made.GPUInstance, made.ComputeInstance)
}

// injectClient makes containers clients of the device's daemon, with its limits. They
// get its folder at the path of the host: NVIDIA wants daemon and clients to agree on
// it.
func injectClient(r *journal.Record, d journal.Device, daemon journal.Daemon, in *gpu.Injection) {
	in.Env = append(in.Env, "CUDA_MPS_PIPE_DIRECTORY="+daemon.Pipe)
	if d.MPS.ThreadPercentage > 0 {
		in.Env = append(in.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", d.MPS.ThreadPercentage))
	}
	clients := []journal.Device{d}
	if d.Share == nil {
		clients = clientsOf(r, d.MPS.Daemon)
	}
	// A container need not have the devices of all requests, and counts the devices
	// that it has. Then only the ceilings of the daemon, which are the same, apply.
	counted := !slices.ContainsFunc(clients, func(c journal.Device) bool { return c.Request != d.Request })
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
		gpu.Mount{HostPath: daemon.Pipe, ContainerPath: daemon.Pipe},
		gpu.Mount{HostPath: daemon.Shm, ContainerPath: "/dev/shm"})
}
