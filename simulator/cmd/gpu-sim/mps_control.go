// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// mpsControl is nvidia-cuda-mps-control. Its flags are the real one's, which
// are not in the style of this tool.
func (t *tool) mpsControl() *cobra.Command {
	return &cobra.Command{
		Use:                nvmlsim.MPSControlName + " [options] [command]",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := t.open()
			if t.state == "" && errors.Is(err, simerr.ErrNotFound) { // as in a container, which has no daemon to start
				return errors.New("simulated NVIDIA driver: use gpu-sim show on the host")
			}
			if err != nil {
				return err
			}
			call, err := mpssim.Parse(s.Model().DriverVersion, args)
			switch o := call.Options; {
			case err != nil:
				return err
			case call.Help:
				_, err := io.WriteString(c.OutOrStdout(), mpssim.HelpText(o.Protocol))
				return err
			case call.Foreground:
				return runMPSDaemon(c, s, o)
			case call.Background:
				return startMPSDaemon(c, s, o, args)
			default:
				return mpssim.Control(c.Context(), o.PipeDirectory, c.InOrStdin(), c.OutOrStdout(), call.Command...)
			}
		},
	}
}

func runMPSDaemon(c *cobra.Command, s *nvmlsim.Sim, o mpssim.Options) error {
	path, err := self()
	if err != nil {
		return err
	}
	o.Log, o.Server = c.ErrOrStderr(), path
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGUSR1)
	o.Faults = faults
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return mpssim.Run(ctx, s, o, func() {})
}

// startMPSDaemon runs the daemon in a separate process.
func startMPSDaemon(c *cobra.Command, s *nvmlsim.Sim, o mpssim.Options, args []string) error {
	path, err := self()
	if err != nil {
		return err
	}
	// It outlives this command.
	daemon := exec.CommandContext(context.WithoutCancel(c.Context()), path, "-f")
	daemon.Args[0] = nvmlsim.MPSControlName
	daemon.Env = append(os.Environ(), "GPU_SIM_STATE="+s.Root())
	for _, arg := range args {
		if name := strings.TrimLeft(arg, "-"); name != "d" && name != "daemon" {
			daemon.Args = append(daemon.Args, arg)
		}
	}
	return mpssim.StartInBackground(c.Context(), daemon, o, c.OutOrStdout())
}

// mpsServer is the process of an MPS server, which a daemon starts.
func (t *tool) mpsServer() *cobra.Command {
	return &cobra.Command{
		Use:    nvmlsim.MPSServerName,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return mpssim.RunServerProcess(c.InOrStdin(), c.OutOrStdout())
		},
	}
}
