// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The commands that break hardware, and heal it.

func (t *tool) fault() *cobra.Command {
	c := &cobra.Command{
		Use:   "fault",
		Short: "Break the node, or heal it",
	}
	c.AddCommand(t.xid(), t.lost(), t.hang(), t.linkDown(), t.ecc(), t.recovery(), t.fabric(), t.slowClocks(), t.call(), t.mpsFaults(),
		&cobra.Command{
			Use:   "no-driver",
			Short: "Unload the kernel driver",
			Args:  cobra.NoArgs,
			RunE:  t.run(func(s *nvmlsim.Sim) error { return s.UnloadDriver() }),
		},
		&cobra.Command{
			Use:   "clear",
			Short: "Heal everything; calls and MPS daemons that hang go on",
			Args:  cobra.NoArgs,
			RunE: t.run(func(s *nvmlsim.Sim) error {
				if _, err := mpssim.Signal(s, "", syscall.SIGCONT); err != nil {
					return err
				}
				return s.ClearFaults()
			}),
		})
	return c
}

func (t *tool) xid() *cobra.Command {
	var xid uint64
	var gpu, mig string
	var pid int
	c := &cobra.Command{
		Use: "xid {--gpu GPU | --mig UUID | --pid PID} --xid NUMBER", Short: "Report an XID error of a GPU, of one of its MIG devices, or of a program on it", Args: cobra.NoArgs,
		RunE: t.run(func(s *nvmlsim.Sim) error {
			switch {
			case mig != "":
				return s.ReportMIGXID(mig, xid)
			case pid > 0:
				daemon, err := s.ReportProcessXID(pid, xid)
				if daemon != "" {
					_, err = mpssim.Signal(s, daemon, syscall.SIGUSR1)
				}
				return err
			}
			index, err := s.FindGPU(gpu)
			if err != nil {
				return err
			}
			return s.ReportXID(index, xid)
		}),
	}
	c.Flags().StringVar(&gpu, "gpu", "", "GPU: index, PCI address or UUID")
	c.Flags().StringVar(&mig, "mig", "", "UUID of a MIG device")
	c.Flags().IntVar(&pid, "pid", 0, "process that caused it; if MPS serves it, the fault ends all clients of its server")
	c.MarkFlagsOneRequired("gpu", "mig", "pid")
	c.MarkFlagsMutuallyExclusive("gpu", "mig", "pid")
	c.Flags().Uint64Var(&xid, "xid", 0, "number in NVIDIA's XID catalogue")
	required(c, "xid")
	return c
}

func (t *tool) lost() *cobra.Command {
	var silent bool
	c := t.gpuCommand("lost --gpu GPU [--silent]", "Let a GPU fall off the bus, with an XID 79; a reset or a reboot heals it",
		func(s *nvmlsim.Sim, index int) error {
			if silent {
				return s.LoseGPUSilently(index)
			}
			return s.LoseGPU(index)
		})
	c.Flags().BoolVar(&silent, "silent", false, "without the XID: only a call of the GPU notices it")
	return c
}

func (t *tool) hang() *cobra.Command {
	return t.gpuCommand("hang --gpu GPU", "Let every NVML call of a GPU hang, until cleared",
		func(s *nvmlsim.Sim, index int) error { return s.HangGPU(index) })
}

func (t *tool) linkDown() *cobra.Command {
	var link int
	c := t.gpuCommand("link-down --gpu GPU --link NUMBER", "Take an NVLink down at both ends, with an XID 74",
		func(s *nvmlsim.Sim, index int) error { return s.LinkDown(index, link) })
	c.Flags().IntVar(&link, "link", 0, "number of the link on the GPU")
	required(c, "link")
	return c
}

func (t *tool) ecc() *cobra.Command {
	return t.gpuCommand("ecc --gpu GPU", "Report an uncorrectable memory error, with an XID 48; from Ampere on the driver asks for a reset",
		func(s *nvmlsim.Sim, index int) error { return s.FailECC(index) })
}

func (t *tool) recovery() *cobra.Command {
	var action string
	c := t.gpuCommand("recovery --gpu GPU --action ACTION", "Let the driver ask for a recovery action, with an XID 154; a reset or a reboot does it",
		func(s *nvmlsim.Sim, index int) error { return s.SetRecovery(index, nvmlsim.RecoveryAction(action)) })
	c.Flags().StringVar(&action, "action", "", strings.Join(nvmlsim.RecoveryActions(), ", "))
	required(c, "action")
	return c
}

func (t *tool) fabric() *cobra.Command {
	var state string
	var clique uint32
	var c *cobra.Command
	c = t.gpuCommand("fabric --gpu GPU {--registration STATE | --clique NUMBER}", "Change how far a GPU's registration with its NVSwitch fabric is, or its clique",
		func(s *nvmlsim.Sim, index int) error {
			if c.Flags().Changed("clique") {
				return s.SetClique(index, clique)
			}
			return s.SetFabric(index, nvmlsim.FabricState(state))
		})
	c.Flags().StringVar(&state, "registration", "", "not-started, in-progress, completed or failed; CUDA initialises only if it is completed")
	c.Flags().Uint32Var(&clique, "clique", 0, "number of the clique, on a GPU of a multi-node fabric")
	c.MarkFlagsOneRequired("registration", "clique")
	c.MarkFlagsMutuallyExclusive("registration", "clique")
	return c
}

func (t *tool) call() *cobra.Command {
	var gpu, returns string
	var hang time.Duration
	var f nvmlsim.CallFault
	c := &cobra.Command{
		Use:     "call --method METHOD [--return CODE] [--hang DURATION] [--after N] [--count N] [--gpu GPU]",
		Short:   "Make calls of an NVML method, or of all, fail or hang",
		Example: "  gpu-sim fault call --method DeviceGetCount --count 3 --return ERROR_TIMEOUT\n  gpu-sim fault call --method DeviceGetUUID --gpu 2 --hang 5s\n  gpu-sim fault call --method DeviceGetMigMode --gpu 0 --after 1 --count 1 --return ERROR_UNKNOWN",
		Args:    cobra.NoArgs,
		RunE: t.run(func(s *nvmlsim.Sim) error {
			f.Hang = nvmlsim.Duration(hang)
			if returns != "" {
				code, err := nvmlsim.ParseReturn(returns)
				if err != nil {
					return err
				}
				f.Return = code
			}
			if gpu != "" {
				index, err := s.FindGPU(gpu)
				if err != nil {
					return err
				}
				f.GPU = &index
			}
			return s.FailCalls(f)
		}),
	}
	c.Flags().StringVar(&f.Method, "method", "", "method of go-nvml's nvml.Interface, such as DeviceGetUUID; * is every method")
	c.Flags().StringVar(&returns, "return", "", "what the calls return, such as ERROR_TIMEOUT")
	c.Flags().DurationVar(&hang, "hang", 0, "how long the calls block first")
	c.Flags().IntVar(&f.After, "after", 0, "number of calls to let pass first")
	c.Flags().IntVar(&f.Count, "count", 0, "number of calls to strike; 0 is until cleared")
	c.Flags().StringVar(&gpu, "gpu", "", "only calls of this GPU: index, PCI address or UUID")
	required(c, "method")
	return c
}

// run opens the node for a command without output.
func (t *tool) run(do func(*nvmlsim.Sim) error) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		return do(s)
	}
}

func (t *tool) slowClocks() *cobra.Command {
	var reason string
	c := t.gpuCommand("slow-clocks --gpu GPU [--reason REASON]", "Reduce the clocks of a GPU", func(s *nvmlsim.Sim, index int) error {
		return s.SlowDown(index, reason)
	})
	c.Flags().StringVar(&reason, "reason", "HwThermalSlowdown", "reason, by NVML's name: SwPowerCap, SwThermalSlowdown, HwSlowdown, HwThermalSlowdown or HwPowerBrakeSlowdown")
	return c
}

// gpuCommand returns a command on the GPU that its flag --gpu names.
func (t *tool) gpuCommand(use, short string, do func(*nvmlsim.Sim, int) error) *cobra.Command {
	var gpu string
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: t.run(func(s *nvmlsim.Sim) error {
			index, err := s.FindGPU(gpu)
			if err != nil {
				return err
			}
			return do(s, index)
		}),
	}
	c.Flags().StringVar(&gpu, "gpu", "", "GPU: index, PCI address or UUID")
	required(c, "gpu")
	return c
}

// required marks a flag. It panics for a flag that the command does not have,
// which is a mistake in this file.
func required(c *cobra.Command, flag string) {
	if err := c.MarkFlagRequired(flag); err != nil {
		panic(fmt.Sprintf("%s: %v", c.Name(), err))
	}
}
