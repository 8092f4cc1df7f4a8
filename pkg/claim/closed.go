// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// annotationClosed of each device of a CDI spec says that [Manager.verify] closed it.
	annotationClosed = "closed"
	// closedNode is the only device node in a closed spec. No machine has it, so a container runtime creates no container
	// with the spec, and its error contains the node.
	closedNode = "/dev/nvidia-unavailable"
)

// verify does every step of a prepared claim again, which repairs lost results. If that fails, the CDI spec must not stay
// as it was. The numbers of device nodes change when the driver is loaded again or a MIG device is made again, and a
// container that starts with those of before may get what another claim has.
func (m *Manager) verify(ctx context.Context, j *job) error {
	verified, err := m.doAgain(ctx, j)
	if err == nil {
		return nil
	}
	partitions := slices.DeleteFunc(slices.Clone(j.Journal[verified:]), func(e journal.Entry) bool { return e.Step != journal.StepCreatePartition })
	switch last := len(j.Journal) - 1; {
	case m.isGone(ctx, j, partitions, err):
		return errors.Join(err, m.closeSpec(ctx, j))
	case verified < last && len(partitions) == 0:
		_, specErr := m.doEntryAgain(ctx, j, &j.Journal[last]) // the step that writes the spec, whose result does not change
		return errors.Join(err, specErr)
	}
	return err
}

// isGone reports whether a device of a claim is known not to be there, after err. A GPU that hangs keeps its device nodes,
// because the driver is not loaded again under it. partitions are the steps of MIG devices that were not verified. One of
// them that has no UUID any more was looked for and not found.
func (m *Manager) isGone(ctx context.Context, j *job, partitions []journal.Entry, err error) bool {
	hangs := errors.Is(err, gpu.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	return slices.ContainsFunc(partitions, func(e journal.Entry) bool {
		noted, unread := e.Partition()
		return !hangs || unread == nil && noted.UUID == ""
	}) || slices.ContainsFunc(gpusOfNames(j.Names()), func(address gpu.PCIAddress) bool {
		_, unread := m.options.Inventory.GPU(ctx, address)
		return gpu.Gone(unread) || errors.Is(unread, gpu.ErrNotReady) && ctx.Err() == nil
	})
}

// closeSpec lets no container start with the claim's devices. The spec remains the witness of the claim.
func (m *Manager) closeSpec(ctx context.Context, j *job) error {
	_, old, _ := m.options.CDI.Read(ctx, j.claim) // one that cannot be read has no annotations to keep
	closed := make([]gpu.Injection, len(j.Devices))
	for i, d := range j.Devices {
		closed[i] = gpu.Injection{ID: d.InjectionID(j.claim), DeviceNodes: []string{closedNode}, Annotations: map[string]string{annotationClosed: "true"}}
		for _, injection := range old {
			if injection.ID == closed[i].ID {
				maps.Copy(closed[i].Annotations, injection.Annotations)
			}
		}
	}
	owner := types.NamespacedName{Namespace: j.Claim.Namespace, Name: j.Claim.Name}
	return m.options.CDI.Close(ctx, j.claim, owner, closed)
}

// LostSpecs returns the prepared claims whose GPUs answer, but whose CDI spec is missing or closed. [Manager.Recover]
// writes it again.
func (m *Manager) LostSpecs(ctx context.Context) ([]types.UID, error) {
	holders, err := m.journal.Holders(ctx)
	if err != nil {
		return nil, err
	}
	var lost []types.UID
	for _, h := range holders {
		if h.Phase == Prepared && !m.hasUsableSpec(ctx, h.Claim.UID) && m.answers(ctx, h) {
			lost = append(lost, h.Claim.UID)
		}
	}
	return lost, nil
}

// hasUsableSpec reports whether containers can start with the CDI spec of a claim. One that cannot be read is of no use.
func (m *Manager) hasUsableSpec(ctx context.Context, claim types.UID) bool {
	_, injections, err := m.options.CDI.Read(ctx, claim)
	return err == nil && !slices.ContainsFunc(injections, func(in gpu.Injection) bool { return in.Annotations[annotationClosed] != "" })
}

// answers reports whether the GPUs of a claim answered in the last scan. It does not wait for the first.
func (m *Manager) answers(ctx context.Context, h journal.Holder) bool {
	now, cancel := context.WithCancel(ctx)
	cancel()
	return !slices.ContainsFunc(gpusOfNames(h.Names()), func(address gpu.PCIAddress) bool {
		_, err := m.options.Inventory.GPU(now, address)
		return err != nil
	})
}
