// SPDX-License-Identifier: Apache-2.0

package memoryhook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup/cgrouptest"
)

// driver records the limits that are set through it.
type driver struct {
	set []string
	// left is the time that the last call had.
	left time.Duration
	// call is what a call does in addition; nil for nothing.
	call func(ctx context.Context) error
}

func (d *driver) SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error {
	end, _ := ctx.Deadline()
	d.set, d.left = append(d.set, fmt.Sprintf("%s: %d on %s", folder, bytes, address)), time.Until(end)
	if d.call != nil {
		return d.call(ctx)
	}
	return nil
}

// idOf returns the ID of a cgroup as an argument.
func idOf(t *testing.T, folder string) string {
	t.Helper()
	id, err := cgroup.Lookup(folder)
	must(t, err)
	return fmt.Sprint(id)
}

func TestTheCallSetsOneLimit(t *testing.T) {
	var d driver
	folder, root := cgrouptest.New(t), ""
	arguments := []string{"--driver-root", "/driver", "--gpu", "0000:1b:00.0", "--cgroup", folder, "--bytes", "4096", "--timeout", "1h", "--id"}
	open := func(driverRoot string) memoryhook.Driver { root = driverRoot; return &d }
	err := memoryhook.RunCall(t.Context(), append(arguments, idOf(t, folder)), open)
	if want := folder + ": 4096 on 0000:1b:00.0"; err != nil || len(d.set) != 1 || d.set[0] != want || root != "/driver" {
		t.Errorf("%v, set %q with the driver in %s; want %q", err, d.set, root, want)
	}
	if d.left <= 0 || d.left > time.Hour {
		t.Errorf("the call of the driver has %v, want at most an hour", d.left)
	}
	// The container has ended, and another one has a cgroup at the path.
	if err := memoryhook.RunCall(t.Context(), append(arguments, "1234567"), open); !errors.Is(err, gpu.ErrNotFound) || len(d.set) != 1 {
		t.Errorf("another cgroup: %v, set %q; want %v", err, d.set, gpu.ErrNotFound)
	}
}

func TestACheckDoesNothing(t *testing.T) {
	open := func(string) memoryhook.Driver { t.Error("the driver was opened"); return &driver{} }
	if err := memoryhook.RunCall(t.Context(), []string{"--check"}, open); err != nil {
		t.Error(err)
	}
	checked := filepath.Join(t.TempDir(), "checked")
	call := []string{"/bin/sh", "-c", `echo "$0" > ` + checked}
	if err := memoryhook.Run(t.Context(), append([]string{"gpu-memory-hook", "--check", "--"}, call...), strings.NewReader("")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(checked); err != nil || string(got) != "--check\n" {
		t.Errorf("the program that calls the driver was run with %q, %v; want --check", got, err)
	}
	if err := memoryhook.Run(t.Context(), []string{"gpu-memory-hook", "--check", "--", "/bin/false"}, strings.NewReader("")); err == nil {
		t.Error("the program that calls the driver fails, and the check does not")
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"an amount with a unit":   {[]string{"--bytes", "10Gi", "--", "/bin/true"}, `invalid value "10Gi" for flag -bytes: `},
		"no amount":               {[]string{"--bytes", "0", "--", "/bin/true"}, `want --bytes`},
		"no program for the call": {nil, `want the program that calls the driver after the flags, got [`},
		"an unknown flag":         {[]string{"--memory", "1", "--", "/bin/true"}, `flag provided but not defined: -memory`},
		"no GPU":                  {[]string{"--gpu", "GPU-1", "--", "/bin/true"}, `"GPU-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			all := append([]string{"/home/gpu-memory-hook", "--gpu", "0000:1b:00.0", "--bytes", "1024"}, c.arguments...)
			err := memoryhook.Run(t.Context(), all, strings.NewReader(state))
			if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "gpu-memory-hook: ") {
				t.Errorf("%v; want one line with %q", err, c.want)
			}
		})
	}
	for name, arguments := range map[string][]string{
		"no amount":       {"--gpu", "0000:1b:00.0", "--cgroup", "/a"},
		"more than flags": {"--gpu", "0000:1b:00.0", "--cgroup", "/a", "--bytes", "1", "state.json"},
		"an unknown flag": {"--memory", "1"},
		"no GPU":          {"--bytes", "1", "--cgroup", "/a"},
	} {
		t.Run("of the call: "+name, func(t *testing.T) {
			var d driver
			if err := memoryhook.RunCall(t.Context(), arguments, func(string) memoryhook.Driver { return &d }); !errors.Is(err, gpu.ErrInvalid) || len(d.set) > 0 {
				t.Errorf("%v, set %q; want %v", err, d.set, gpu.ErrInvalid)
			}
		})
	}
}

// The runtime shows the text to the user, who knows nothing of the hook.
func TestAnErrorNamesTheProgramTheGPUAndTheAmount(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "limits")
	must(t, containerlimits.Folder(folder).Open(device))
	err := memoryhook.Run(t.Context(), []string{
		"/home/v1/gpu-memory-hook", "--limits", folder, "--device", device, "--gpu", "0000:1b:00.0", "--bytes", "10485760", "--", "/bin/false",
	}, strings.NewReader(state))
	const want = "gpu-memory-hook: cannot limit the memory of the container on GPU 0000:1b:00.0 to 10 MiB: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one line that begins %s", err, want)
	}
}
