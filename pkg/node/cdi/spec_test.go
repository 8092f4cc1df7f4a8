// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const driverName = "gpu.nvidia.com"

func owner() types.NamespacedName { return types.NamespacedName{Namespace: "team-a", Name: "one-gpu"} }

// driverFiles are edits of the shape that a driver has.
func driverFiles() *specs.ContainerEdits {
	return &specs.ContainerEdits{
		Env:         []string{"NVIDIA_VISIBLE_DEVICES=void"},
		DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidiactl", HostPath: "/run/nvidia/dev/nvidiactl"}},
		Mounts:      []*specs.Mount{{HostPath: "/usr/lib/libcuda.so.570.1", ContainerPath: "/usr/lib/libcuda.so.570.1", Options: []string{"ro"}}},
		Hooks:       []*specs.Hook{{HookName: cdiapi.CreateContainerHook, Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", "update-ldcache"}}},
	}
}

// share is what an MPS share of a GPU brings into a container.
func share(id string, threads int) gpu.Injection {
	const daemon = "/run/gpu-mps-supervisor/daemons/gpu-1b-00"
	return gpu.Injection{
		ID:          "5ca1ab1e-gpu-1b-00_" + id,
		DeviceNodes: []string{"/dev/nvidia0"},
		Env: []string{
			"CUDA_MPS_PIPE_DIRECTORY=" + daemon + "/pipe",
			fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", threads),
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=9728M",
		},
		Mounts: []gpu.Mount{
			{HostPath: daemon + "/pipe", ContainerPath: daemon + "/pipe"},
			{HostPath: daemon + "/shm", ContainerPath: "/dev/shm"},
		},
	}
}

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		devRoot    string
		driver     *specs.ContainerEdits
		injections []gpu.Injection
	}{
		"whole-gpu": {
			devRoot:    "/",
			driver:     driverFiles(),
			injections: []gpu.Injection{{ID: "5ca1ab1e-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}}},
		},
		"two-gpus-of-a-driver-container": {
			devRoot: "/run/nvidia",
			driver:  driverFiles(),
			injections: []gpu.Injection{
				{ID: "5ca1ab1e-gpu-43-00", DeviceNodes: []string{"/dev/nvidia1"}},
				{ID: "5ca1ab1e-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}},
			},
		},
		"mounts-and-environment": {
			devRoot: "/",
			injections: []gpu.Injection{{
				ID:          "5ca1ab1e-gpu-1b-00",
				DeviceNodes: []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"},
				Env:         []string{"NAME=value", "EMPTY="},
				Mounts:      []gpu.Mount{{HostPath: "/run/x", ContainerPath: "/run/y"}, {HostPath: "/etc/x", ContainerPath: "/etc/x", ReadOnly: true}},
			}},
		},
		"two-shares-of-a-gpu": {
			devRoot:    "/",
			driver:     driverFiles(),
			injections: []gpu.Injection{share("0d7ad4cf-93c6-4b73-94a8-4d4d1a9a1fc4", 25), share("9f5c1f8e-0d0b-4c3e-8f5a-6d0e2b7c1a44", 50)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := Render(driverName, c.devRoot, owner(), c.driver, c.injections)
			must(t, err)
			got, err := json.MarshalIndent(spec, "", "  ")
			must(t, err)
			golden := filepath.Join("testdata", name+".golden.json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(golden, append(got, '\n'), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			require.Same(t, golden, string(want), string(got)+"\n")
			// What runtimes use must take it.
			if _, err := cdiapi.ReadSpec(golden, 0); err != nil {
				t.Errorf("the CDI library refuses it: %v", err)
			}
		})
	}
}

func TestRenderRefusesWhatARuntimeWouldStumbleOver(t *testing.T) {
	good := func() gpu.Injection { return gpu.Injection{ID: "a-gpu-1b-00", DeviceNodes: []string{"/dev/nvidia0"}} }
	with := func(change func(*gpu.Injection)) []gpu.Injection {
		in := good()
		change(&in)
		return []gpu.Injection{in}
	}
	for name, c := range map[string]struct {
		injections []gpu.Injection
		want       string
	}{
		"no device":                      {nil, "no devices"},
		"the same device twice":          {[]gpu.Injection{good(), good()}, `"a-gpu-1b-00" appears twice`},
		"no name":                        {with(func(in *gpu.Injection) { in.ID = "" }), "empty"},
		"a name with a slash":            {with(func(in *gpu.Injection) { in.ID = "a/b" }), "invalid character"},
		"a device that changes nothing":  {[]gpu.Injection{{ID: "a"}}, "changes nothing"},
		"a node outside /dev":            {with(func(in *gpu.Injection) { in.DeviceNodes = []string{"/etc/shadow"} }), "/etc/shadow"},
		"a node that climbs out of /dev": {with(func(in *gpu.Injection) { in.DeviceNodes = []string{"/dev/../etc/shadow"} }), "/dev/../etc/shadow"},
		"a variable without a name":      {with(func(in *gpu.Injection) { in.Env = []string{"=x"} }), `invalid environment variable "=x"`},
		"a variable without a value":     {with(func(in *gpu.Injection) { in.Env = []string{"X"} }), `invalid environment variable "X"`},
		"a variable of two lines":        {with(func(in *gpu.Injection) { in.Env = []string{"X=1\nLD_PRELOAD=y"} }), "line break"},
		"a relative mount":               {with(func(in *gpu.Injection) { in.Mounts = []gpu.Mount{{HostPath: "x", ContainerPath: "/x"}} }), `mount "x"`},
		"a mount that climbs":            {with(func(in *gpu.Injection) { in.Mounts = []gpu.Mount{{HostPath: "/x/../y", ContainerPath: "/x"}} }), `mount "/x/../y"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(driverName, "/", owner(), driverFiles(), c.injections)
			if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v that says %s", err, gpu.ErrInvalid, c.want)
			}
		})
	}
}
