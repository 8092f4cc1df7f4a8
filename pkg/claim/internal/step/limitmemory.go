// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// limitMemory lets the driver limit the memory that containers have of a GPU. A hook of
// the claim's CDI spec sets the limit on the cgroup of each container. The step opens the
// folder in which the hook counts the containers of a device. The hook of a device
// without a folder fails, so no container starts with a claim that is not prepared.
type limitMemory struct{ *ports.MemoryLimits }

var (
	_ Filer    = limitMemory{}
	_ Injector = limitMemory{}
	_ Witness  = limitMemory{}
	_ Sweeper  = limitMemory{}
)

func newLimitMemory(parts ports.Node) Step {
	if parts.Limits == nil {
		return unsupported{limitMemory{}}
	}
	return limitMemory{parts.Limits}
}

func (limitMemory) Name() string { return journal.StepLimitMemory }

func (limitMemory) GPUWide() bool { return false }

func (limitMemory) OnlyFiles() {}

func (limitMemory) Needed(p plan.Plan) []kind.Name {
	if slices.ContainsFunc(p.Devices, func(d plan.Device) bool { return d.Limit != nil }) {
		return []kind.Name{{}}
	}
	return nil
}

func (s limitMemory) Do(_ context.Context, w Work, _ journal.Entry) (json.RawMessage, error) {
	for _, d := range w.Devices {
		if d.Limit == nil {
			continue
		}
		if err := s.Folder.Open(d.InjectionID(w.Claim.UID)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Undo closes all folders of the claim: a share that the claim had before its record was
// lost may have another ID. It closes none while the claim still holds devices by the CDI
// spec of its lost record, whose containers may start again.
func (s limitMemory) Undo(ctx context.Context, w Work, _ journal.Entry) error {
	holders, err := w.Others.List(ctx)
	if err != nil || slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim.UID == w.Claim.UID }) {
		return err
	}
	_, err = s.close(func(o plan.Injected) bool { return o.Claim == w.Claim.UID })
	return err
}

// close closes the folders of the matching devices, and reports whether there are any.
func (s limitMemory) close(match func(plan.Injected) bool) (closed bool, err error) {
	ids, err := s.Folder.Devices()
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		if injected, err := plan.ParseInjectionID(id); err != nil || !match(injected) {
			continue
		}
		if err := s.Folder.Close(id); err != nil {
			return closed, err
		}
		closed = true
	}
	return closed, nil
}

// Inject adds the hook that limits the memory of a container.
func (s limitMemory) Inject(_ context.Context, r *journal.Record, d plan.Device, injection *gpu.Injection) error {
	if d.Limit == nil {
		return nil
	}
	hook, err := s.Hook(d.InjectionID(r.Claim.UID), d.Name.Address, d.Limit.Memory, d.Limit.Containers)
	if err != nil {
		return err
	}
	injection.Hooks = append(injection.Hooks, hook)
	return nil
}

func (limitMemory) Lost(d journal.LostDevice) (kind.Name, json.RawMessage, bool) {
	return kind.Name{}, nil, d.Name.Kind.Scope() == kind.ScopeGPU
}

func (s limitMemory) Leftovers(context.Context) ([]kind.Name, error) {
	ids, err := s.Folder.Devices()
	var devices []kind.Name
	for _, id := range ids {
		if injected, err := plan.ParseInjectionID(id); err == nil {
			devices = append(devices, injected.Device)
		}
	}
	slices.SortFunc(devices, kind.Compare)
	return slices.Compact(devices), err
}

// Sweep closes the folders of claims that hold nothing.
func (s limitMemory) Sweep(ctx context.Context, device kind.Name, others *journal.Others) (bool, error) {
	holders, err := others.List(ctx)
	if err != nil {
		return false, err
	}
	closed, err := s.close(func(o plan.Injected) bool {
		return o.Device == device && !slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim.UID == o.Claim })
	})
	if closed {
		klog.FromContext(ctx).Info("Removed memory limits of claims that are gone", "step", s.Name(), "device", device)
	}
	return closed, err
}
