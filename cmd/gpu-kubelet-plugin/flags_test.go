// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// parse reads a command line and an environment as the command does.
func parse(args []string, env map[string]string) (*options, error) {
	var o options
	if err := programtest.Parse(o.flags(), twins, args, env); err != nil {
		return nil, err
	}
	return &o, o.complete()
}

func TestAFlagWinsOverTheEnvironmentAndThatOverTheDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"default":                        {want: "/var/run/cdi"},
		"environment":                    {env: map[string]string{"GPU_DRA_CDI_DIR": "/env"}, want: "/env"},
		"flag":                           {args: []string{"--cdi-dir=/flag"}, want: "/flag"},
		"flag and environment":           {args: []string{"--cdi-dir=/flag"}, env: map[string]string{"GPU_DRA_CDI_DIR": "/env"}, want: "/flag"},
		"flag that repeats the default":  {args: []string{"--cdi-dir=/var/run/cdi"}, env: map[string]string{"GPU_DRA_CDI_DIR": "/env"}, want: "/var/run/cdi"},
		"a variable of another program":  {env: map[string]string{"CDI_DIR": "/env"}, want: "/var/run/cdi"},
		"relative paths become absolute": {args: []string{"--cdi-dir=/a/../b"}, want: "/b"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(tc.args, tc.env)
			must(t, err)
			if o.CDIDir != tc.want {
				t.Errorf("CDI directory %q, want %q", o.CDIDir, tc.want)
			}
		})
	}
}

func TestEveryFlagHasAnEnvironmentTwin(t *testing.T) {
	o, err := parse(nil, map[string]string{
		"GPU_DRA_MACHINE_ROOT": "/machine", "GPU_DRA_PRINT_SLICES": "true", "GPU_DRA_V": "5",
		"GPU_DRA_RECONCILE_INTERVAL": "30s", "GPU_DRA_DRIVER_ROOT": "/run/nvidia/driver", "GPU_DRA_HTTP_LISTEN": "",
	})
	must(t, err)
	if o.MachineRoot != "/machine" || !o.printSlices || o.logging.Verbosity != 5 || o.ReconcileInterval.Seconds() != 30 || o.HTTPListen != "" {
		t.Errorf("options %+v do not follow the environment", o)
	}
	if o.DevRoot != "/run/nvidia/driver" {
		t.Errorf("device root %q, want the driver root", o.DevRoot)
	}
}

func TestInvalidValuesAreRefusedWithTheFlagAndTheValidValues(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		env     map[string]string
		want    string
		invalid bool
	}{
		"a layout of no file":        {args: []string{"--mig-layout=halves"}, want: "--mig-layout=halves: invalid: want --mig-layouts too", invalid: true},
		"a layout of static MIG":     {args: []string{"--mig-layouts=/layouts.yaml", "--mig-layout=halves", "--mig=static"}, want: "--mig-layout=halves: invalid: want --mig=dynamic", invalid: true},
		"unknown offer":              {args: []string{"--offer=share,free"}, want: `"free" is unknown; known are: share`, invalid: true},
		"driver name with a capital": {args: []string{"--driver-name=GPU"}, want: "--driver-name=GPU: invalid: ", invalid: true},
		"node name with a space":     {args: []string{"--node-name=a b"}, want: "--node-name=a b: invalid: ", invalid: true},
		"no reconcile interval":      {args: []string{"--reconcile-interval=0"}, want: "--reconcile-interval=0s: invalid: want at least 1s", invalid: true},
		"a server of half a Mi":      {args: []string{"--mps-server-memory=512Ki"}, want: "--mps-server-memory=512Ki: invalid: want whole Mi", invalid: true},
		"a server below nothing":     {args: []string{"--mps-server-memory=-1Mi"}, want: "--mps-server-memory=-1Mi: invalid: want whole Mi", invalid: true},
		"shares of nothing":          {args: []string{"--smallest-share=0"}, want: "--smallest-share=0: invalid: want whole Mi", invalid: true},
		"shares of odd bytes":        {args: []string{"--smallest-share=2G"}, want: "--smallest-share=2G: invalid: want whole Mi", invalid: true},
		"exclusive without MPS":      {args: []string{"--exclusive-compute", "--mps-supervisor="}, want: "--exclusive-compute=true: invalid: want --mps-supervisor too", invalid: true},
		"less compute than there is": {args: []string{"--compute-overcommit=0.5"}, want: "--compute-overcommit=0.5: invalid: want a number from 1 to 100", invalid: true},
		"compute that is NaN":        {args: []string{"--compute-overcommit=NaN"}, want: "--compute-overcommit=NaN: invalid: want a number from 1 to 100", invalid: true},
		"compute without end":        {args: []string{"--compute-overcommit=Inf"}, want: "--compute-overcommit=+Inf: invalid: want a number from 1 to 100", invalid: true},
		"no seats":                   {args: []string{"--seats=0"}, want: "--seats=0: invalid: want a number from 1 to 48", invalid: true},
		"more seats than clients":    {args: []string{"--seats=49"}, want: "--seats=49: invalid: want a number from 1 to 48", invalid: true},
		"no slots":                   {args: []string{"--timeslice-slots=0"}, want: "--timeslice-slots=0: invalid: want a number from 1 on", invalid: true},
		"a size that is none":        {args: []string{"--smallest-share=1GB"}, want: `invalid argument "1GB" for "--smallest-share" flag`},
		"variable without a size":    {env: map[string]string{"GPU_DRA_MPS_SERVER_MEMORY": "big"}, want: "environment variable GPU_DRA_MPS_SERVER_MEMORY: "},
		"unknown flag":               {args: []string{"--nodename=x"}, want: "unknown flag: --nodename"},
		"variable without a bool":    {env: map[string]string{"GPU_DRA_PRINT_SLICES": "maybe"}, want: "environment variable GPU_DRA_PRINT_SLICES: "},
		"variable without a unit":    {env: map[string]string{"GPU_DRA_RECONCILE_INTERVAL": "5"}, want: "environment variable GPU_DRA_RECONCILE_INTERVAL: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.args, tc.env)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, tc.want)
			}
			if errors.Is(err, gpu.ErrInvalid) != tc.invalid {
				t.Errorf("errors.Is(%v, gpu.ErrInvalid) = %v", err, !tc.invalid)
			}
		})
	}
}

// A name that this release does not know must not stop the agents of all nodes. It can be
// there after a downgrade.
func TestAnUnknownAttributeIsReportedAndTheOthersArePublished(t *testing.T) {
	o, err := parse([]string{"--attributes=lean,colour,eccEnabled"}, nil)
	must(t, err)
	if !o.Attributes.Includes("eccEnabled") || o.Attributes.Includes("brand") {
		t.Errorf("the selection is %+v", o.Attributes)
	}
	if err := o.UnknownAttributes; !errors.Is(err, gpu.ErrInvalid) || !strings.HasPrefix(err.Error(), `--attributes: "colour": `) {
		t.Errorf("the reported problem is %v", err)
	}
	if o, err := parse([]string{"--attributes=all"}, nil); err != nil || o.UnknownAttributes != nil {
		t.Errorf("all: %v, %v", o.UnknownAttributes, err)
	}
}

func TestSharesAreOfferedAsTheFlagsSay(t *testing.T) {
	o, err := parse([]string{"--smallest-share=100Mi", "--compute-overcommit=1.5"}, nil)
	must(t, err)
	want := catalog.ShareOffer{Smallest: 100 << 20, ComputeOvercommit: 1.5, Units: kind.Numbers{kind.TimeSlice: 4, kind.Seat: 4}, ServerMemory: 80 << 20}
	require.Same(t, "shares offered", want, o.Shares)
}

func TestHelpExplainsEveryFlag(t *testing.T) {
	files.Golden(t, "help.txt", programtest.Output(t, newCommand(nil), "--help"))
}
