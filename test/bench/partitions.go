// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// measurePartitions measures the figures of MIG, with an agent that offers it. It does
// nothing if the GPUs of the model cannot be partitioned on demand.
func (b *bench) measurePartitions(ctx context.Context, f *figures) error {
	if err := b.deleteSlices(ctx); err != nil {
		return err
	}
	a, err := b.start(ctx, "--offer=share,mig")
	if err != nil {
		return err
	}
	defer a.kill()
	devices, err := b.deviceNames(ctx)
	if err != nil {
		return err
	}
	smallest := smallestPartitions(devices)
	if len(smallest) < 2 {
		progress("the GPUs of model %s are not cut on demand", b.model)
		return a.stop()
	}
	y, err := b.newYardstick(ctx)
	if err != nil {
		return err
	}

	progress("preparing and unpreparing %d partitions, one at a time", b.rounds)
	// The other partition of the same GPU keeps its MIG mode on.
	measured, other := smallest[0], smallest[1]
	keeper, err := b.claim(ctx, other.String())
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, keeper); err != nil {
		return err
	}
	if err := y.keep(ctx, other); err != nil {
		return err
	}
	for range b.rounds {
		if err := b.partitionRound(ctx, a, y, measured, f); err != nil {
			return err
		}
	}
	if err := a.kubelet.Unprepare(ctx, keeper); err != nil {
		return err
	}

	names := make([]string, len(smallest))
	for i, device := range smallest {
		names[i] = device.String()
	}
	progress("preparing %d partitions at once, %d times", len(names), b.bursts)
	f.Partitions = len(names)
	for range b.bursts {
		if err := b.burst(ctx, a, names, &f.PartitionBurst); err != nil {
			return err
		}
	}
	if f.MemoryPartitions, err = anonymousMemory(a.cmd.Process.Pid); err != nil {
		return err
	}
	if err := a.stop(); err != nil {
		return err
	}
	return b.measureAllocator(ctx, y.node, f)
}

// smallestPartitions returns the partitions of one slice among the published devices.
// All of them fit at the same time.
func smallestPartitions(devices []string) []kind.Name {
	var smallest []kind.Name
	for _, name := range devices {
		device, err := kind.Parse(name)
		if err == nil && device.IsPartition() && device.Profile.Slices == 1 && device.Profile.Media == "" {
			smallest = append(smallest, device)
		}
	}
	return smallest
}

// partitionRound prepares and unprepares a claim of one partition. Before that, the
// simulator alone creates and destroys the same partition.
func (b *bench) partitionRound(ctx context.Context, a *agent, y *yardstick, device kind.Name, f *figures) error {
	create, destroy, err := y.round(ctx, device)
	if err != nil {
		return err
	}
	claim, err := b.claim(ctx, device.String())
	if err != nil {
		return err
	}
	prepare, unprepare, err := b.cycle(ctx, a, claim, clock())
	f.PartitionPrepare = append(f.PartitionPrepare, prepare)
	f.PartitionUnprepare = append(f.PartitionUnprepare, unprepare)
	f.SimCreate = append(f.SimCreate, create)
	f.SimDestroy = append(f.SimDestroy, destroy)
	return err
}

// yardstick is a second simulated node of the same model, in this process and without
// an agent. It is on the same disk. It measures the simulator's own cost of a
// partition.
type yardstick struct {
	library *nvml.Library
	node    gpu.Node
}

func (b *bench) newYardstick(ctx context.Context) (*yardstick, error) {
	model, err := nvmlsim.LoadModel(b.model)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "yardstick-sim")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	sim, err := nvmlsim.Create(dir, model)
	if err != nil {
		return nil, err
	}
	y := &yardstick{library: nvml.New(sim.NVML())}
	if y.node, err = y.library.Snapshot(ctx); err != nil {
		return nil, err
	}
	if len(y.node.Unreadable) > 0 {
		return nil, errors.New("the simulator has a GPU that cannot be read")
	}
	return y, nil
}

// keep creates a partition that stays, as the agent does.
func (y *yardstick) keep(ctx context.Context, device kind.Name) error {
	if err := y.library.SetMIGMode(ctx, device.Address, true); err != nil {
		return err
	}
	_, err := y.library.CreatePartition(ctx, device.Address, device.Profile, device.Start)
	return err
}

// round creates and destroys a partition, and returns the times.
func (y *yardstick) round(ctx context.Context, device kind.Name) (create, destroy float64, err error) {
	create, err = took(func() error {
		_, err := y.library.CreatePartition(ctx, device.Address, device.Profile, device.Start)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("the simulator alone: %w", err)
	}
	destroy, err = took(func() error {
		return y.library.DestroyPartition(ctx, device.Address, device.Profile, device.Start)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("the simulator alone: %w", err)
	}
	return create, destroy, nil
}
