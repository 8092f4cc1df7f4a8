// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/nvml"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// measurePartitions measures the figures of MIG, with an agent that offers it. It does
// nothing if the GPUs of the model cannot be partitioned on demand.
func (b *bench) measurePartitions(ctx context.Context, f *figures) error {
	if err := b.deleteSlices(ctx); err != nil {
		return err
	}
	a, _, err := b.start(ctx, "--offer=share,mig")
	if err != nil {
		return err
	}
	defer a.kill()
	devices, err := b.devices(ctx)
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
	if _, err := a.prepare(ctx, keeper); err != nil {
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
	var bursts figures
	for range b.bursts {
		if err := b.burst(ctx, a, names, &bursts); err != nil {
			return err
		}
	}
	f.Partitions, f.PartitionBurst = len(names), bursts.Burst
	if f.ResidentPartitions, err = a.resident(); err != nil {
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
	prepare, err := a.prepare(ctx, claim)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := a.kubelet.Unprepare(ctx, claim); err != nil {
		return err
	}
	unprepare := time.Since(start)
	f.PartitionPrepare = append(f.PartitionPrepare, prepare)
	f.PartitionUnprepare = append(f.PartitionUnprepare, unprepare)
	f.SimCreate = append(f.SimCreate, create)
	f.SimDestroy = append(f.SimDestroy, destroy)
	return b.client.ResourceV1().ResourceClaims(b.namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{})
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

// round creates and destroys a partition.
func (y *yardstick) round(ctx context.Context, device kind.Name) (create, destroy time.Duration, err error) {
	start := time.Now()
	if _, err := y.library.CreatePartition(ctx, device.Address, device.Profile, device.Start); err != nil {
		return 0, 0, fmt.Errorf("the simulator alone: %w", err)
	}
	create = time.Since(start)
	start = time.Now()
	if err := y.library.DestroyPartition(ctx, device.Address, device.Profile, device.Start); err != nil {
		return 0, 0, fmt.Errorf("the simulator alone: %w", err)
	}
	return create, time.Since(start), nil
}
