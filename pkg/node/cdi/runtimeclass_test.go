// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// hostile is the environment of a tenant who wants more than the claim: all GPUs, and
// another memory limit. NVIDIA's toolkit acts on each of these variables.
func hostile() []string {
	return []string{
		"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_GPU_MEMORY_LIMIT=900000", "NVIDIA_GPU_MEMORY_REQUEST=1",
		"NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all",
		"NVIDIA_IMEX_CHANNELS=all", "NVIDIA_GDS=enabled", "NVIDIA_DISABLE_REQUIRE=true",
	}
}

// toolkit is NVIDIA's container runtime, built from its source, with a low-level runtime
// that does nothing.
type toolkit struct {
	t      *testing.T
	folder string
}

func newToolkit(t *testing.T) *toolkit {
	t.Helper()
	k := &toolkit{t: t, folder: t.TempDir()}
	const source = "github.com/NVIDIA/nvidia-container-toolkit/cmd/"
	build := exec.CommandContext(t.Context(), "go", "build", "-o", k.folder+"/", source+"nvidia-container-runtime", source+"nvidia-container-runtime-hook")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build NVIDIA's runtime: %v: %s", err, out)
	}
	k.write("runc", "#!/bin/sh\n")
	k.write("nvidia-container-cli", "#!/bin/sh\ntouch \"$0.called\"\n")
	t.Setenv("NVIDIA_CTK_CONFIG_FILE_PATH", k.path("config.toml"))
	return k
}

// setMode sets how the runtime finds the GPUs of a container.
func (k *toolkit) setMode(mode string) {
	k.write("config.toml", fmt.Sprintf("[nvidia-container-cli]\npath = %[1]q\n[nvidia-container-runtime]\nmode = %[2]q\nruntimes = [%[3]q]\n",
		k.path("nvidia-container-cli"), mode, k.path("runc")))
}

func (k *toolkit) path(name string) string { return filepath.Join(k.folder, name) }

func (k *toolkit) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(k.path(name), []byte(text), 0o755); err != nil {
		k.t.Fatal(err)
	}
}

// create makes NVIDIA's runtime create a container. It returns the container's
// specification as the low-level runtime gets it, and the errors that NVIDIA's runtime
// logs. It creates the container in spite of some.
func (k *toolkit) create(spec *oci.Spec) (*oci.Spec, string) {
	k.t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.MkdirAll(k.path("rootfs"), 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.write("config.json", string(data))
	out, err := exec.CommandContext(k.t.Context(), k.path("nvidia-container-runtime"), "create", "--bundle", k.folder, "container").CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		k.t.Fatal(err)
	}
	if data, err = os.ReadFile(k.path("config.json")); err != nil {
		k.t.Fatal(err)
	}
	got := &oci.Spec{}
	if err := json.Unmarshal(data, got); err != nil {
		k.t.Fatal(err)
	}
	return got, string(out)
}

// containerOf returns the specification of a tenant's container with a limited share. A
// runtime makes the same one of our CDI specification.
func containerOf(t *testing.T) *oci.Spec {
	t.Helper()
	driver := newFakeDriver(t)
	w, err := NewWriter(Options{Dir: t.TempDir(), DriverName: driverName, Edits: NewDriverEdits(driver, Roots{Driver: driver.root, Dev: driver.root}, "/usr/bin/nvidia-cdi-hook")})
	must(t, err)
	in := gpu.Injection{ID: "a-gpu-1b-00", Env: []string{"DEVICE=1"}, Hooks: []gpu.Hook{{Path: "/memory-hook", Args: []string{"gpu-memory-hook", "--bytes", "1073741824"}}}}
	ids, err := w.Write(t.Context(), "a", owner(), []gpu.Injection{in})
	must(t, err)
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.Dir), cdiapi.WithAutoRefresh(false))
	must(t, err)
	spec := &oci.Spec{Version: "1.2.0", Root: &oci.Root{Path: "rootfs"}, Process: &oci.Process{Cwd: "/", Env: hostile(), Args: []string{"train"}}}
	if unresolved, err := cache.InjectDevices(spec, ids...); err != nil {
		t.Fatalf("inject %q: %v, unresolved %q", ids, err, unresolved)
	}
	return spec
}

// A pod may choose the RuntimeClass of NVIDIA's toolkit. That takes GPUs and memory
// limits from the pod's environment.
func TestNVIDIAsRuntimeChangesNoContainerOfAClaim(t *testing.T) {
	k := newToolkit(t)
	for _, mode := range []string{"auto", "jit-cdi", "cdi"} {
		t.Run(mode, func(t *testing.T) {
			k.setMode(mode)
			spec := containerOf(t)
			got, said := k.create(spec)
			if diff := cmp.Diff(spec, got); diff != "" || strings.Contains(said, "error") {
				t.Errorf("it says %q, and changes the container (-before +after):\n%s", said, diff)
			}
			if hooks := got.Hooks.CreateRuntime; len(hooks) != 1 || hooks[0].Path != "/memory-hook" {
				t.Errorf("hooks that set limits: %+v, want ours alone", hooks)
			}
			for _, h := range slices.Concat(got.Hooks.CreateRuntime, got.Hooks.CreateContainer, got.Hooks.Prestart) { //nolint:staticcheck // NVIDIA's
				if slices.Contains(h.Args, "apply-cuda-memory-limits") {
					t.Errorf("a hook takes the limit of the tenant's environment: %q", h.Args)
				}
			}
			// Without our specification the same environment requests GPUs. There are none
			// on this machine, so that fails.
			without := *spec
			process := *spec.Process
			process.Env = hostile()
			without.Process = &process
			if _, said := k.create(&without); !strings.Contains(said, "could not apply required modification") {
				t.Errorf("without our specification it says %q: the test proves nothing", said)
			}
		})
	}
}

// The toolkit's older mode adds a hook to each container, which reads the environment.
func TestNVIDIAsHookAddsNoGPUToAContainerOfAClaim(t *testing.T) {
	k := newToolkit(t)
	k.setMode("legacy")
	called := func(spec *oci.Spec) (bool, error) {
		k.create(spec)
		hook := exec.CommandContext(t.Context(), k.path("nvidia-container-runtime-hook"), "prestart")
		hook.Stdin = strings.NewReader(fmt.Sprintf(`{"pid":%d,"bundle":%q}`, os.Getpid(), k.folder))
		out, err := hook.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		_, missing := os.Stat(k.path("nvidia-container-cli.called"))
		return missing == nil, err
	}
	spec := containerOf(t)
	if adds, err := called(spec); adds || err != nil {
		t.Errorf("it adds GPUs to a container of a claim: %t, %v", adds, err)
	}
	spec.Process.Env = hostile()[:1]
	if adds, err := called(spec); !adds {
		t.Errorf("it adds none to a container without a claim either: the test proves nothing; %v", err)
	}
}
