// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The commands on a node as a whole.

func (t *tool) create() *cobra.Command {
	var model, library string
	var ifMissing bool
	c := &cobra.Command{
		Use:   "create --state DIR --model NAME|FILE.yaml",
		Short: "Make a simulated node",
		Long: "Make a simulated node in a folder: a root file system with NVIDIA's driver, its\n" +
			"libnvidia-ml.so.1 and programs, and /dev, /proc and /sys of the GPUs. Programs use it as\n" +
			"they use a driver that a container has installed: by its path as the driver root.\n\nBuilt-in models: " + strings.Join(nvmlsim.ModelNames(), ", ") +
			".\nA model of your own is a YAML file; simulator/nvmlsim/models in the sources holds the built-in ones.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if t.state == "" {
				return fmt.Errorf("where to? give a directory with --state")
			}
			m, err := nvmlsim.LoadModel(model)
			if err != nil {
				return err
			}
			made, create := "made", nvmlsim.Create
			if ifMissing {
				made, create = "there is", nvmlsim.OpenOrCreate
			}
			s, err := create(t.state, m)
			if err != nil {
				return err
			}
			err = errors.Join(installLibrary(s, library), installPrograms(s))
			if err != nil && !ifMissing { // otherwise other processes may use the node
				err = errors.Join(err, s.Destroy())
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s a %s with %d GPUs in %s, which is its driver root\n", made, m.Name, len(m.GPUs), s.Root())
			return err
		},
	}
	c.Flags().StringVar(&model, "model", "", "built-in model or path of a YAML file")
	c.Flags().BoolVar(&ifMissing, "if-missing", false, "leave a node of the same model that is there, and bring its library and programs up to date")
	c.Flags().StringVar(&library, "library", "", "`FILE` of the simulated libnvidia-ml.so.1 (default: the one next to this program; without one, programs cannot load the library)")
	required(c, "model")
	return c
}

// installLibrary installs the library at the path, or the one next to this program if there
// is one.
func installLibrary(s *nvmlsim.Sim, path string) error {
	if path == "" {
		program, err := self()
		if err != nil {
			return err
		}
		path = filepath.Join(filepath.Dir(program), "libnvidia-ml.so.1")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return s.InstallLibrary(path)
}

// installPrograms installs this program as the programs of the driver.
func installPrograms(s *nvmlsim.Sim) error {
	path, err := self()
	if err != nil {
		return err
	}
	return s.InstallPrograms(path)
}

func (t *tool) show() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "show",
		Short: "Show GPUs, modes, links, MIG instances, processes and faults",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			view, err := s.View()
			if err != nil {
				return err
			}
			return printAs(c.OutOrStdout(), output, view, view.WriteText)
		},
	}
	outputFlag(c, &output)
	return c
}

func (t *tool) reboot() *cobra.Command {
	return &cobra.Command{
		Use:   "reboot",
		Short: "Reboot the node: processes, MIG instances and faults are gone, the boot ID is new",
		Args:  cobra.NoArgs,
		RunE:  t.run(func(s *nvmlsim.Sim) error { return s.Reboot() }),
	}
}

func (t *tool) reset() *cobra.Command {
	return t.gpuCommand("reset --gpu GPU", "Reset an idle GPU: pending modes take hold, MIG instances are gone",
		func(s *nvmlsim.Sim, index int) error { return s.ResetGPU(index) })
}

func (t *tool) destroy() *cobra.Command {
	return &cobra.Command{
		Use:   "destroy",
		Short: "Remove the node from its directory",
		Args:  cobra.NoArgs,
		RunE:  t.run(func(s *nvmlsim.Sim) error { return s.Destroy() }),
	}
}

func (t *tool) process() *cobra.Command {
	c := &cobra.Command{Use: "process", Short: "Let processes compute on GPUs"}
	var memory uint64
	var p nvmlsim.Process
	add := t.gpuCommand("add --gpu GPU --pid PID [--memory MIB]", "Let a process compute on a GPU or on one of its MIG devices, until it ends if it runs on this machine",
		func(s *nvmlsim.Sim, index int) error {
			p.MemoryBytes, p.Started = memory<<20, nvmlsim.StartOf(p.PID)
			return s.AddProcess(index, p)
		})
	add.Flags().IntVar(&p.PID, "pid", 0, "process ID")
	add.Flags().StringVar(&p.Name, "name", "", "name of the process")
	add.Flags().Uint64Var(&memory, "memory", 0, "memory it uses, in MiB")
	add.Flags().StringVar(&p.Device, "device", "", "UUID of a MIG device; without it the process uses the whole GPU")
	required(add, "pid")
	var pid int
	remove := &cobra.Command{
		Use:   "remove --pid PID",
		Short: "End a process on all GPUs",
		Args:  cobra.NoArgs,
		RunE:  t.run(func(s *nvmlsim.Sim) error { return s.RemoveProcess(pid) }),
	}
	remove.Flags().IntVar(&pid, "pid", 0, "process ID")
	required(remove, "pid")
	c.AddCommand(add, remove)
	return c
}
