// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// limitMemory lets the driver limit the memory that containers have of a GPU. A hook of
// the claim's CDI spec sets the limit on the cgroup of each container. The step opens the
// folder in which the hook counts the containers of a device. The hook of a device
// without a folder fails, so no container starts with a claim that is not prepared.
type limitMemory struct{ Options }

func (limitMemory) Name() string { return journal.StepLimitMemory }

func (limitMemory) GPUWide() bool { return false }

func (limitMemory) Needed(p *plan.Plan) []string {
	if slices.ContainsFunc(p.Record.Devices, func(d journal.Device) bool { return d.Limit != nil }) {
		return []string{""}
	}
	return nil
}

func (limitMemory) Note(context.Context, Work, *journal.Entry) error { return nil }

func (s limitMemory) Do(_ context.Context, w Work, _ *journal.Entry) error {
	names, err := w.Names()
	if err != nil {
		return err
	}
	for i, d := range w.Devices {
		if d.Limit == nil {
			continue
		}
		if err := s.Limits.Folder.Open(d.InjectionID(w.Claim.UID, names[i])); err != nil {
			return err
		}
	}
	return nil
}

// Undo closes all folders of the claim: a share that the claim had before its record was
// lost may have another ID. It closes none while the claim still holds devices by the CDI
// spec of its lost record, whose containers may start again.
func (s limitMemory) Undo(ctx context.Context, w Work, _ journal.Entry) error {
	holders, err := w.Others.List(ctx)
	if err != nil || slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim.UID == w.Claim.UID }) {
		return err
	}
	_, err = s.close(func(o journal.Injected) bool { return o.Claim == w.Claim.UID })
	return err
}

// close closes the folders of the matching devices, and reports whether there are any.
func (s limitMemory) close(match func(journal.Injected) bool) (closed bool, err error) {
	ids, err := s.Limits.Folder.Devices()
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		if of, err := journal.ParseInjectionID(id); err != nil || !match(of) {
			continue
		}
		if err := s.Limits.Folder.Close(id); err != nil {
			return closed, err
		}
		closed = true
	}
	return closed, nil
}

// Inject adds the hook that limits the memory of a container.
func (s limitMemory) Inject(_ context.Context, r *journal.Record, d journal.Device, in *gpu.Injection) error {
	if d.Limit == nil {
		return nil
	}
	name, err := kind.Parse(d.Name)
	if err != nil {
		return err
	}
	hook, err := s.Limits.Hook(d.InjectionID(r.Claim.UID, name), name.Address, d.Limit.Memory, d.Limit.Containers)
	if err != nil {
		return err
	}
	in.Hooks = append(in.Hooks, hook)
	return nil
}

func (limitMemory) Lost(d journal.LostDevice) (string, []byte, bool) {
	return "", nil, d.Name.Kind.Scope() == kind.ScopeGPU
}

func (s limitMemory) Leftovers(context.Context) ([]string, error) {
	ids, err := s.Limits.Folder.Devices()
	var devices []string
	for _, id := range ids {
		if of, err := journal.ParseInjectionID(id); err == nil {
			devices = append(devices, of.Device.String())
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices), err
}

// Sweep closes the folders of claims that hold nothing.
func (s limitMemory) Sweep(ctx context.Context, device string, others *journal.Others) (bool, error) {
	holders, err := others.List(ctx)
	if err != nil {
		return false, err
	}
	closed, err := s.close(func(o journal.Injected) bool {
		return o.Device.String() == device && !slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim.UID == o.Claim })
	})
	if closed {
		klog.FromContext(ctx).Info("Removed memory limits of claims that are gone", "step", s.Name(), "device", device)
	}
	return closed, err
}
