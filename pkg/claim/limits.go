package claim

import (
	"fmt"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// shareSize is what the limits of an MPS share's processes follow from. Memory
// is in bytes.
type shareSize struct {
	memory, all uint64 // of the share and of its device
	compute     int    // percent of the multiprocessors, 0 where the claim named none
	burst       bool   // a share that names no compute is not limited
	processes   int
	context     uint64 // what a process takes besides what it is limited to
}

// limitsOf gives what each process of a share is held to, so that all of them
// together take no more than the share:
//
//	memory   share / processes - context, rounded down to whole Mi
//	threads  compute / processes, rounded down; at least 1
//
// A share that names no compute has as large a part of it as of the memory. The
// error wraps [gpu.ErrInvalid] and says how large the share has to be.
func limitsOf(s shareSize) (client, error) {
	processes := uint64(max(1, s.processes))
	c := client{Processes: int(processes)}
	each := s.memory / processes
	if least := s.context + catalog.MemoryStep; each < least {
		needed := (processes*least + catalog.MemoryStep - 1) / catalog.MemoryStep * catalog.MemoryStep
		return client{}, fmt.Errorf("%w: %s of memory for %d processes leaves none to compute with: each needs %s for its CUDA context alone; ask for %s at least, or declare fewer processes in the ShareConfig",
			gpu.ErrInvalid, inBytes(s.memory), processes, inBytes(s.context), inBytes(needed))
	}
	c.MemoryLimit = (each - s.context) / catalog.MemoryStep * catalog.MemoryStep
	percent := uint64(s.compute)
	switch {
	case percent > 0:
	case s.burst:
		return c, nil
	default:
		percent = 100 * s.memory / s.all
	}
	c.ThreadPercentage = int(max(1, percent/processes))
	return c, nil
}
