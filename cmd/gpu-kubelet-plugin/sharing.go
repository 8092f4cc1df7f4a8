// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// sharing is how several claims share a GPU, where the node offers that.
type sharing struct {
	supervisor   string // socket of gpu-mps-supervisor; empty for none
	serverMemory resource.QuantityValue
	exclusive    bool
	smallest     resource.QuantityValue
	overcommit   float64
	units        map[kind.Kind]*int
}

func (s *sharing) flags(fs *pflag.FlagSet) {
	s.serverMemory.Quantity = *resource.NewQuantity(catalog.DefaultServerMemory, resource.BinarySI)
	s.smallest.Quantity = *resource.NewQuantity(catalog.DefaultSmallestShare, resource.BinarySI)

	fs.StringVar(&s.supervisor, "mps-supervisor", mpsv1.DefaultSocket, "`SOCKET` of gpu-mps-supervisor, whose MPS daemons limit shares; empty for none: shares are then counted and not limited, and published so")
	fs.Var(&s.serverMemory, "mps-server-memory", "`SIZE` of the memory that the MPS server of a GPU or MIG device uses: devices whose shares MPS limits are published with that much less")
	fs.BoolVar(&s.exclusive, "exclusive-compute", false, "put a GPU into the compute mode EXCLUSIVE_PROCESS while it has MPS shares, and back afterwards: then a process that avoids MPS cannot use the GPU. Plain shares of GPUs that MPS limits are refused")
	fs.Var(&s.smallest, "smallest-share", "`SIZE` of the smallest share that may be requested: more than the CUDA context of a process, which is part of its share")
	fs.Float64Var(&s.overcommit, "compute-overcommit", 1, "how many times the compute of a GPU may be promised to shares, as a `RATIO` from 1 on; memory is never promised twice")
	s.units = map[kind.Kind]*int{}
	for _, k := range kind.Divided() {
		u := k.Units()
		s.units[k] = fs.Int(u.Flag, u.Standard, u.Usage)
	}
}

func (s *sharing) complete() error {
	if err := program.MakeAbsolute(&s.supervisor); err != nil {
		return err
	}
	if s.exclusive && s.supervisor == "" {
		return program.Invalid("exclusive-compute", s.exclusive, "want --mps-supervisor too: without MPS there is nothing that several processes could share such a GPU with")
	}
	if !wholeSteps(s.serverMemory.Quantity) {
		return program.Invalid("mps-server-memory", &s.serverMemory, "want whole Mi, such as 80Mi; 0 for none")
	}
	if err := catalog.CheckSmallestShare(s.smallest.Quantity); err != nil {
		return fmt.Errorf("--smallest-share=%w", err)
	}
	if err := catalog.CheckComputeOvercommit(s.overcommit); err != nil {
		return fmt.Errorf("--compute-overcommit=%w", err)
	}
	for _, k := range kind.Divided() {
		if err := k.Units().CheckNumber(*s.units[k]); err != nil {
			return fmt.Errorf("--%s=%w", k.Units().Flag, err)
		}
	}
	return nil
}

// wholeSteps reports whether a size is a multiple of the unit of memory.
func wholeSteps(q resource.Quantity) bool {
	bytes, exact := q.AsInt64()
	return exact && bytes >= 0 && bytes%catalog.MemoryStep == 0
}

// shares is how the node offers shares.
func (s *sharing) shares() catalog.ShareOffer {
	units := kind.Numbers{}
	for k, number := range s.units {
		units[k] = *number
	}
	return catalog.ShareOffer{ComputeOvercommit: s.overcommit, Smallest: s.smallest.Value(), Units: units, ServerMemory: uint64(s.serverMemory.Value())}
}
