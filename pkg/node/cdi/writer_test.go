// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"k8s.io/apimachinery/pkg/types"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

type fixedEdits struct {
	edits *specs.ContainerEdits
	err   error
}

func (f fixedEdits) Edits(context.Context) (*specs.ContainerEdits, error) { return f.edits, f.err }

func newWriter(t *testing.T) *Writer {
	t.Helper()
	w, err := NewWriter(Options{Dir: t.TempDir(), DriverName: driverName, Edits: fixedEdits{edits: driverFiles()}})
	must(t, err)
	return w
}

func gpus(claim string, devices ...string) []gpu.Injection {
	var out []gpu.Injection
	for i, d := range devices {
		out = append(out, gpu.Injection{ID: claim + "-" + d, DeviceNodes: []string{fmt.Sprintf("/dev/nvidia%d", i)}})
	}
	return out
}

func TestADirectoryThatWasRemovedIsMadeAgainByTheNextSpec(t *testing.T) {
	w := newWriter(t)
	must(t, os.RemoveAll(w.Dir))
	if claims, err := w.List(t.Context()); err != nil || len(claims) != 0 {
		t.Errorf("specs in a directory that is gone: %v, %v, want none", claims, err)
	}
	if _, err := w.Write(t.Context(), "uid-1", types.NamespacedName{Namespace: "team", Name: "one"}, gpus("one", "gpu-1b-00")); err != nil {
		t.Fatal(err)
	}
	if got := files.List(t, w.Dir); len(got) != 1 {
		t.Errorf("specs: %q, want one", got)
	}
}

func TestWriteReadListRemove(t *testing.T) {
	w := newWriter(t)
	made := map[string]string{"partition": `{"uuid":"MIG-1"}`}
	for _, claim := range []types.UID{"b", "a"} {
		injections := gpus(string(claim), "gpu-43-00", "gpu-1b-00")
		injections[1].Annotations = made
		ids, err := w.Write(t.Context(), claim, owner(), injections)
		must(t, err)
		want := []string{"gpu.nvidia.com/claim=" + string(claim) + "-gpu-43-00", "gpu.nvidia.com/claim=" + string(claim) + "-gpu-1b-00"}
		require.Same(t, "IDs", want, ids)
	}
	// None of these is ours: upstream's metadata, another driver's, a person's.
	foreign := []string{"gpu.nvidia.com_metadata_a_gpu.json", "other.example.com-claim-a.json", "gpu.nvidia.com-claim-.json", "gpu.nvidia.com-claim-x.yaml", "nvidia.yaml"}
	for _, name := range foreign {
		must(t, os.WriteFile(filepath.Join(w.Dir, name), nil, 0o644))
	}
	claims, err := w.List(t.Context())
	if diff := cmp.Diff([]types.UID{"a", "b"}, claims); diff != "" || err != nil {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	gotOwner, read, err := w.Read(t.Context(), "a")
	want := []gpu.Injection{{ID: "a-gpu-43-00"}, {ID: "a-gpu-1b-00", Annotations: made}}
	if diff := cmp.Diff(want, read); diff != "" || err != nil || gotOwner != owner() {
		t.Errorf("read: %v, owner %v (-want +got):\n%s", err, gotOwner, diff)
	}
	for range 2 {
		for _, claim := range claims {
			must(t, w.Remove(t.Context(), claim))
		}
	}
	slices.Sort(foreign)
	require.Same(t, "files of others must stay", foreign, files.List(t, w.Dir))
	if _, _, err := w.Read(t.Context(), "a"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("read after remove: %v, want %v", err, gpu.ErrNotFound)
	}
}

func TestWriteRepairsAndOtherwiseLeavesAlone(t *testing.T) {
	w := newWriter(t)
	write := func() fs.FileInfo {
		t.Helper()
		if _, err := w.Write(t.Context(), "a", owner(), gpus("a", "gpu-1b-00")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(w.Dir, "gpu.nvidia.com-claim-a.json"))
		must(t, err)
		return info
	}
	first := write()
	if !os.SameFile(first, write()) {
		t.Error("a spec that was right was written again: every runtime would read it again")
	}
	must(t, os.WriteFile(filepath.Join(w.Dir, first.Name()), []byte("{"), 0o644))
	if _, _, err := w.Read(t.Context(), "a"); !errors.Is(err, gpu.ErrCorrupt) {
		t.Errorf("reading half a spec: %v, want %v", err, gpu.ErrCorrupt)
	}
	if repaired := write(); repaired.Size() != first.Size() {
		t.Errorf("repaired spec has %d bytes, want %d", repaired.Size(), first.Size())
	}
}

func TestWhatACrashLeftOfAWriteIsListedAndRemoved(t *testing.T) {
	w := newWriter(t)
	must(t, os.WriteFile(filepath.Join(w.Dir, "gpu.nvidia.com-claim-a.json.tmp"), []byte("{"), 0o644))
	claims, err := w.List(t.Context())
	if diff := cmp.Diff([]types.UID{"a"}, claims); diff != "" || err != nil {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	must(t, w.Remove(t.Context(), "a"))
	if left := files.List(t, w.Dir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestNothingIsLeftOfAFailedWrite(t *testing.T) {
	w := newWriter(t)
	// A directory in the place of the spec lets the rename fail.
	must(t, os.Mkdir(filepath.Join(w.Dir, "gpu.nvidia.com-claim-a.json"), 0o755))
	if _, err := w.Write(t.Context(), "a", owner(), gpus("a", "gpu-1b-00")); err == nil {
		t.Fatal("no error")
	}
	require.Same(t, "files", []string{"gpu.nvidia.com-claim-a.json"}, files.List(t, w.Dir))
}

func TestClaimUIDsCannotNameOtherFiles(t *testing.T) {
	w := newWriter(t)
	for _, claim := range []types.UID{"", "../a", "a/b", "a.b", "-a"} {
		_, writeErr := w.Write(t.Context(), claim, owner(), gpus("a", "gpu-1b-00"))
		_, _, readErr := w.Read(t.Context(), claim)
		for op, err := range map[string]error{"write": writeErr, "read": readErr, "remove": w.Remove(t.Context(), claim)} {
			if !errors.Is(err, gpu.ErrInvalid) {
				t.Errorf("%s %q: %v, want %v", op, claim, err, gpu.ErrInvalid)
			}
		}
	}
}

func TestNoSpecIsWrittenWithoutADriver(t *testing.T) {
	w := newWriter(t)
	w.Edits = fixedEdits{err: gpu.ErrNotReady}
	if _, err := w.Write(t.Context(), "a", owner(), gpus("a", "gpu-1b-00")); !errors.Is(err, gpu.ErrNotReady) {
		t.Errorf("got %v, want %v", err, gpu.ErrNotReady)
	}
	if left := files.List(t, w.Dir); len(left) != 0 {
		t.Errorf("written: %q", left)
	}
}

// A runtime's own library must find the device by its ID and put it into a
// container.
func TestARuntimeInjectsTheDevice(t *testing.T) {
	// Making device nodes takes root, so these stand for a GPU's and for the
	// driver's.
	edits := driverFiles()
	edits.DeviceNodes[0] = &specs.DeviceNode{Path: "/dev/nvidiactl", HostPath: "/dev/zero"}
	w := newWriter(t)
	w.Edits = fixedEdits{edits: edits}
	ids, err := w.Write(t.Context(), "a", owner(), []gpu.Injection{{ID: "a-gpu-1b-00", DeviceNodes: []string{"/dev/null"}}})
	must(t, err)
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.Dir), cdiapi.WithAutoRefresh(false))
	must(t, err)
	container := &oci.Spec{}
	if unresolved, err := cache.InjectDevices(container, ids...); err != nil {
		t.Fatalf("inject %q: %v, unresolved %q", ids, err, unresolved)
	}
	var devices []string
	for _, d := range container.Linux.Devices {
		devices = append(devices, d.Path)
	}
	slices.Sort(devices)
	require.Same(t, "devices", []string{"/dev/null", "/dev/nvidiactl"}, devices)
	if !slices.Contains(container.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("environment %q lacks NVIDIA_VISIBLE_DEVICES=void", container.Process.Env)
	}
}

// The CDI library appends the hooks of every device ID that it gets, also of a repeated
// ID. It applies the edits of the spec once.
func TestAContainerGetsTheDriverOnceHoweverManyDevicesItHas(t *testing.T) {
	withoutNodes := func(id string) gpu.Injection { return gpu.Injection{ID: id, Env: []string{"DEVICE_" + id + "=1"}} } // making nodes takes root
	for name, tc := range map[string]struct {
		claims map[types.UID][]string // device IDs of each claim
		uses   []string
		env    []string
		hooks  int
	}{
		"one device":               {map[types.UID][]string{"a": {"a1"}}, []string{"a1"}, []string{"DEVICE_a1=1"}, 1},
		"one of two devices":       {map[types.UID][]string{"a": {"a1", "a2"}}, []string{"a2"}, []string{"DEVICE_a2=1"}, 1},
		"two devices of one claim": {map[types.UID][]string{"a": {"a1", "a2"}}, []string{"a1", "a2"}, []string{"DEVICE_a1=1", "DEVICE_a2=1"}, 1},
		"one device, named twice":  {map[types.UID][]string{"a": {"a1"}}, []string{"a1", "a1"}, []string{"DEVICE_a1=1"}, 1},
		"a device of each of two":  {map[types.UID][]string{"a": {"a1"}, "b": {"b1"}}, []string{"a1", "b1"}, []string{"DEVICE_a1=1", "DEVICE_b1=1"}, 2},
		"two devices of each of two": {map[types.UID][]string{"a": {"a1", "a2"}, "b": {"b1", "b2"}}, []string{"a1", "b1", "a2", "b2"},
			[]string{"DEVICE_a1=1", "DEVICE_b1=1", "DEVICE_a2=1", "DEVICE_b2=1"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			edits := driverFiles()
			edits.DeviceNodes = []*specs.DeviceNode{{Path: "/dev/null"}}
			w.Edits = fixedEdits{edits: edits}
			for claim, devices := range tc.claims {
				var injections []gpu.Injection
				for _, id := range devices {
					injections = append(injections, withoutNodes(id))
				}
				if _, err := w.Write(t.Context(), claim, owner(), injections); err != nil {
					t.Fatal(err)
				}
			}
			cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.Dir), cdiapi.WithAutoRefresh(false))
			must(t, err)
			var ids []string
			for _, id := range tc.uses {
				ids = append(ids, driverName+"/claim="+id)
			}
			container := &oci.Spec{}
			if unresolved, err := cache.InjectDevices(container, ids...); err != nil {
				t.Fatalf("inject %q: %v, unresolved %q", ids, err, unresolved)
			}
			require.Same(t, "environment", append([]string{"NVIDIA_VISIBLE_DEVICES=void"}, tc.env...), container.Process.Env, cmpopts.SortSlices(strings.Compare))
			if n := len(container.Mounts); n != 1 {
				t.Errorf("%d mounts %v, want the driver's library once", n, container.Mounts)
			}
			if n := len(container.Linux.Devices); n != 1 {
				t.Errorf("%d device nodes %v, want the driver's once", n, container.Linux.Devices)
			}
			if n := len(container.Hooks.CreateContainer); n != tc.hooks {
				t.Errorf("%d hooks, want one for each claim: %d", n, tc.hooks)
			}
		})
	}
}

// Every pod has its own /dev/shm, in which an MPS server would never find its
// client.
func TestARuntimeReplacesThePodsSharedMemoryByThatOfTheShare(t *testing.T) {
	w := newWriter(t)
	w.Edits = fixedEdits{edits: &specs.ContainerEdits{}}
	in := share("0d7ad4cf-93c6-4b73-94a8-4d4d1a9a1fc4", 25)
	in.DeviceNodes = nil // making them takes root
	ids, err := w.Write(t.Context(), "a", owner(), []gpu.Injection{in})
	must(t, err)
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(w.Dir), cdiapi.WithAutoRefresh(false))
	must(t, err)
	container := &oci.Spec{Mounts: []oci.Mount{
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/shm", Type: "bind", Source: "/run/sandbox/shm"},
		{Destination: "/run", Type: "tmpfs", Source: "tmpfs"},
	}}
	if unresolved, err := cache.InjectDevices(container, ids...); err != nil {
		t.Fatalf("inject %q: %v, unresolved %q", ids, err, unresolved)
	}
	var mounted []string
	for _, m := range container.Mounts {
		mounted = append(mounted, m.Source+" on "+m.Destination)
	}
	want := []string{
		"tmpfs on /dev",
		"tmpfs on /run",
		"/run/gpu-mps-supervisor/daemons/gpu-1b-00/shm on /dev/shm",
		"/run/gpu-mps-supervisor/daemons/gpu-1b-00/pipe on /run/gpu-mps-supervisor/daemons/gpu-1b-00/pipe",
	}
	require.Same(t, "mounts in their order", want, mounted)
	require.Same(t, "environment", in.Env, container.Process.Env)
}

var must = require.NoError
