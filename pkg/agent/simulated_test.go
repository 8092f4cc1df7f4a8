// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cdi"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/nvml"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// open opens the simulated GPUs of a model in this process, which one process can do for any
// number of nodes. It creates the node in the folder if it is missing.
func open(t testing.TB, c *Config, model, folder string) *hardware {
	t.Helper()
	m, err := nvmlsim.LoadModel(model)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.OpenOrCreate(folder, m)
	if err != nil {
		t.Fatal(err)
	}
	if c.network != nil {
		sim.PollEvents(2 * time.Second)
	}
	options := []nvml.Option{nvml.OwnCgroup(ownCgroup())}
	if c.MIG.AllowReset {
		options = append(options, nvml.AllowReset(func(_ context.Context, address gpu.PCIAddress) error {
			index, err := sim.FindGPU(address.String())
			if err != nil {
				return err
			}
			return sim.ResetGPU(index)
		}))
	}
	return &hardware{
		Library:    nvml.New(sim.NVML(), options...),
		machine:    sysfs.Root(sim.Root()),
		roots:      cdi.Roots{Driver: sim.Root(), Dev: sim.Root()},
		timeSlices: nvml.NewSMI(gpu.DriverRoot(sim.Root())),
		// A test is in no container, so its own cgroup shows nothing.
		checkContainers: func() error {
			_, err := cgroup.Root()
			return err
		},
	}
}

// hardware opens the GPUs of the node.
func (n *node) hardware(t testing.TB) *hardware {
	t.Helper()
	return open(t, n.Config, "dgx-h100", n.SimState)
}

// print prints the slices that an agent of the node would publish.
func (n *node) print(t testing.TB, w, problems io.Writer) error {
	t.Helper()
	hw := n.hardware(t)
	defer func() {
		if err := hw.close(); err != nil {
			t.Error(err)
		}
	}()
	return printSlices(t.Context(), n.Config, hw, w, problems)
}
