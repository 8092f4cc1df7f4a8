package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Held is a claim that holds devices of this node.
type Held struct {
	Ref
	Phase Phase
	// Devices of a prepared claim; of any other only their names and GPUs.
	Devices []Device
}

// Held lists the claims that hold devices, as the disk has it now, ordered by
// namespace, name and UID.
func (m *Manager) Held(ctx context.Context) ([]Held, error) {
	// Specs before records: in the other order, a claim that is prepared in
	// between would look as if its record were lost.
	specs, err := m.CDI.List(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := m.Records.Keys()
	if err != nil {
		return nil, err
	}
	var all []Held
	recorded := make(map[types.UID]bool)
	for _, key := range keys {
		claim := types.UID(key)
		r, err := m.read(claim)
		if err != nil {
			continue // its spec tells instead, below
		}
		recorded[claim] = true
		if phase := m.phase(r); r != nil && phase != Outlived {
			devices, err := r.held()
			if err != nil {
				return nil, err
			}
			all = append(all, Held{Ref: r.Claim, Phase: phase, Devices: devices})
		}
	}
	for _, claim := range specs {
		if recorded[claim] {
			continue
		}
		held, err := m.witness(ctx, claim)
		if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
			continue // nothing can be told from it, and no container can use it
		}
		if err != nil {
			return nil, err
		}
		all = append(all, held)
	}
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return all, nil
}

// witness tells from its CDI spec what a claim without a readable record holds.
func (m *Manager) witness(ctx context.Context, claim types.UID) (Held, error) {
	owner, injections, err := m.CDI.Read(ctx, claim)
	if err != nil {
		return Held{}, err
	}
	held := Held{Ref: Ref{Namespace: owner.Namespace, Name: owner.Name, UID: claim}, Phase: Unrecorded}
	for _, id := range injections {
		device := strings.TrimPrefix(id, injectionID(claim, ""))
		if name, err := gpu.ParseDeviceName(device); err == nil {
			held.Devices = append(held.Devices, Device{Name: device, Kind: name.Kind, Address: name.Address})
		}
	}
	return held, nil
}

// lost tells from its CDI spec what a claim holds if it has no record; nothing
// where there is no spec to tell.
func (m *Manager) lost(ctx context.Context, claim types.UID, r *record) (Held, error) {
	if r != nil {
		return Held{}, nil
	}
	held, err := m.witness(ctx, claim)
	if errors.Is(err, gpu.ErrNotFound) || errors.Is(err, gpu.ErrCorrupt) {
		err = nil
	}
	return held, err
}

// held gives the devices of a record; CDI IDs where they are known.
func (r *record) held() ([]Device, error) {
	ids, err := r.cdiDeviceIDs()
	if err != nil {
		return nil, err
	}
	devices := make([]Device, len(r.Devices))
	for i, a := range r.Devices {
		name, err := gpu.ParseDeviceName(a.Device)
		if err != nil {
			return nil, err
		}
		devices[i] = Device{
			Request: a.Request, Pool: a.Pool, Name: a.Device, ShareID: a.ShareID,
			Kind: name.Kind, Address: name.Address, UUID: a.UUID,
		}
		if name.Kind == gpu.KindMIG {
			made, err := r.partition(a.Device)
			if err != nil {
				return nil, err
			}
			devices[i].UUID = made.UUID
		}
		if ids != nil {
			devices[i].CDIDeviceIDs = []string{ids[i]}
		}
	}
	return devices, nil
}

// free reports an error that wraps [gpu.ErrInUse] if another claim holds a device
// of the record or one that cannot be beside it. The caller holds the locks of these GPUs, so no claim can come
// to hold one meanwhile.
func (m *Manager) free(ctx context.Context, r *record) error {
	wanted, err := r.names()
	if err != nil {
		return err
	}
	all, err := m.Held(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.UID == r.Claim.UID {
			continue
		}
		for _, d := range other.Devices {
			name, err := gpu.ParseDeviceName(d.Name)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(wanted, func(w gpu.DeviceName) bool { return m.conflict(ctx, w, name) }); i >= 0 {
				return fmt.Errorf("device %s: %w: claim %s holds %s (%s)", wanted[i], gpu.ErrInUse, other.Ref, d.Name, strings.ToLower(string(other.Phase)))
			}
		}
	}
	return nil
}

// names of the record's devices, parsed.
func (r *record) names() ([]gpu.DeviceName, error) {
	names := make([]gpu.DeviceName, len(r.Devices))
	for i, d := range r.Devices {
		var err error
		if names[i], err = gpu.ParseDeviceName(d.Device); err != nil {
			return nil, err
		}
	}
	return names, nil
}
