// SPDX-License-Identifier: Apache-2.0

package memoryhook_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/memoryhook"
)

// driver records the limits that are set through it.
type driver struct {
	root string
	set  []string
	// left is the time that the last call had.
	left time.Duration
}

func (d *driver) AddFlags(flags *flag.FlagSet) { flags.StringVar(&d.root, "driver-root", "/", "") }

func (d *driver) SetMemoryLimit(ctx context.Context, address gpu.PCIAddress, folder string, bytes uint64) error {
	end, _ := ctx.Deadline()
	d.set, d.left = append(d.set, fmt.Sprintf("%s of %s: %d on %s", folder, d.root, bytes, address)), time.Until(end)
	return nil
}

func TestTheChildSetsTheLimitOfTheLastFlags(t *testing.T) {
	var d driver
	err := memoryhook.Run(t.Context(), []string{
		"/home/gpu-memory-hook", "--limits", "/none", "--gpu", "0000:1b:00.0", "--bytes", "1024", "--timeout", "1h", "--driver-root", "/driver",
		"--cgroup", "/sys/fs/cgroup/a", "--bytes", "4096",
	}, strings.NewReader("not read"), &d)
	if want := "/sys/fs/cgroup/a of /driver: 4096 on 0000:1b:00.0"; err != nil || len(d.set) != 1 || d.set[0] != want {
		t.Errorf("%v, set %q; want %q", err, d.set, want)
	}
	if d.left <= 0 || d.left > time.Hour {
		t.Errorf("the call of the driver has %v, want at most an hour", d.left)
	}
}

func TestACheckDoesNothing(t *testing.T) {
	var d driver
	if err := memoryhook.Run(t.Context(), []string{"gpu-memory-hook", "--check"}, strings.NewReader(""), &d); err != nil || len(d.set) > 0 {
		t.Errorf("%v, set %q", err, d.set)
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"an amount with a unit": {[]string{"--bytes", "10Gi"}, `gpu-memory-hook: invalid: invalid value "10Gi" for flag -bytes: `},
		"no amount":             {[]string{"--bytes", "0"}, `gpu-memory-hook: invalid: want --bytes and flags only, got [`},
		"more than flags":       {[]string{"state.json"}, `gpu-memory-hook: invalid: want --bytes and flags only, got [`},
		"an unknown flag":       {[]string{"--memory", "1"}, `gpu-memory-hook: invalid: flag provided but not defined: -memory`},
		"no GPU":                {[]string{"--gpu", "GPU-1"}, `"GPU-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			var d driver
			all := append([]string{"gpu-memory-hook", "--gpu", "0000:1b:00.0", "--bytes", "1024", "--cgroup", "/a"}, c.arguments...)
			err := memoryhook.Run(t.Context(), all, strings.NewReader(state), &d)
			if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || len(d.set) > 0 {
				t.Errorf("%v, set %q; want one line with %q", err, d.set, c.want)
			}
		})
	}
}

// The runtime shows the text to the user, who knows nothing of the hook.
func TestAnErrorNamesTheProgramTheGPUAndTheAmount(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "limits")
	if err := containerlimits.Folder(folder).Open(device); err != nil {
		t.Fatal(err)
	}
	err := memoryhook.Run(t.Context(), []string{
		"/home/v1/gpu-memory-hook", "--limits", folder, "--device", device, "--gpu", "0000:1b:00.0", "--bytes", "10485760",
	}, strings.NewReader(state), &driver{})
	const want = "gpu-memory-hook: cannot limit the memory of the container on GPU 0000:1b:00.0 to 10 MiB: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one line that begins %s", err, want)
	}
}
