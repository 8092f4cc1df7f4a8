package claim

import (
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// daemonFor gives what a daemon is to be for the claim of a record, which may be
// nil, and for the others that use it. Its ceilings are what the largest client
// has: all that a client gets that drops its environment.
func daemonFor(name string, own *record, others []holder) (gpu.MPSDaemon, error) {
	daemon := gpu.MPSDaemon{Name: name}
	records := []*record{}
	if own != nil {
		records = append(records, own)
	}
	for _, other := range others {
		if other.began(stepStartMPS, name) {
			records = append(records, other.record)
		}
	}
	for _, r := range records {
		for _, d := range r.Devices {
			if d.MPS == nil || d.MPS.Daemon != name {
				continue
			}
			clients := []allocated{d}
			if d.Share == nil {
				clients = r.clientsOf(name)
			}
			devices, limits := make([]string, len(clients)), make([]uint64, len(clients))
			for i, c := range clients {
				uuid, err := r.uuid(c)
				if err != nil {
					return daemon, err
				}
				devices[i], limits[i] = uuid, c.MPS.MemoryLimit
			}
			if daemon.Devices == nil {
				daemon.Devices, daemon.ThreadPercentage, daemon.MemoryLimits = devices, d.MPS.ThreadPercentage, limits
			} else {
				raise(&daemon, d.MPS.ThreadPercentage, limits)
			}
		}
	}
	return daemon, nil
}

// raise gives the daemon the higher ones of its and these ceilings. 0 is none,
// and the highest.
func raise(daemon *gpu.MPSDaemon, threads int, limits []uint64) {
	if threads == 0 || daemon.ThreadPercentage == 0 {
		daemon.ThreadPercentage = 0
	} else {
		daemon.ThreadPercentage = max(daemon.ThreadPercentage, threads)
	}
	for i := range daemon.MemoryLimits {
		if i >= len(limits) || limits[i] == 0 || daemon.MemoryLimits[i] == 0 {
			daemon.MemoryLimits[i] = 0
		} else {
			daemon.MemoryLimits[i] = max(daemon.MemoryLimits[i], limits[i])
		}
	}
}

// clientsOf gives the whole devices that a daemon of the claim's own is for.
func (r *record) clientsOf(daemon string) []allocated {
	var clients []allocated
	for _, d := range r.Devices {
		if d.Share == nil && d.MPS != nil && d.MPS.Daemon == daemon {
			clients = append(clients, d)
		}
	}
	return clients
}

// uuid of a device: of a MIG device the one that was made.
func (r *record) uuid(d allocated) (string, error) {
	name, err := kind.Parse(d.Device)
	if err != nil || name.Kind != kind.MIG {
		return d.UUID, err
	}
	made, err := r.partition(d.Device)
	return made.UUID, err
}
