// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestRemoveLeftoversRemovesOnlyFilesOfKilledAgents(t *testing.T) {
	data, registry, specs := t.TempDir(), t.TempDir(), t.TempDir()
	listen := func(path string) *net.UnixListener {
		t.Helper()
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		must(t, err)
		return listener
	}
	for _, path := range []string{
		filepath.Join(data, "dra-11111111.sock"), filepath.Join(data, "dra.sock"),
		filepath.Join(registry, "gpu.nvidia.com-11111111-reg.sock"), filepath.Join(registry, "nic.example.com-11111111-reg.sock"),
	} {
		killed := listen(path)
		killed.SetUnlinkOnClose(false)
		must(t, killed.Close())
	}
	for _, path := range []string{filepath.Join(data, "dra-22222222.sock"), filepath.Join(registry, "gpu.nvidia.com-22222222-reg.sock")} {
		alive := listen(path)
		t.Cleanup(func() { _ = alive.Close() })
	}
	for _, path := range []string{
		filepath.Join(registry, "gpu.nvidia.com-33333333-reg.sock"),
		filepath.Join(specs, "gpu.nvidia.com_metadata_uid_gpu.json"), filepath.Join(specs, "gpu.nvidia.com_metadata_uid_gpu.json.123.tmp"),
		filepath.Join(specs, "nic.example.com_metadata_uid_gpu.json.123.tmp"),
	} {
		must(t, os.WriteFile(path, nil, 0o600))
	}

	folders := place.Place{DriverName: "gpu.nvidia.com", DataDir: data, RegistryDir: registry, CDIDir: specs}
	must(t, place.RemoveLeftovers(t.Context(), folders))
	for dir, want := range map[string][]string{
		data:     {"dra-22222222.sock", "dra.sock"},
		specs:    {"gpu.nvidia.com_metadata_uid_gpu.json", "nic.example.com_metadata_uid_gpu.json.123.tmp"},
		registry: {"gpu.nvidia.com-22222222-reg.sock", "gpu.nvidia.com-33333333-reg.sock", "nic.example.com-11111111-reg.sock"},
	} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		got := slices.Collect(func(yield func(string) bool) {
			for _, e := range entries {
				if !yield(e.Name()) {
					return
				}
			}
		})
		require.Same(t, "left in "+dir, want, got)
	}
	folders.DataDir = filepath.Join(data, "none")
	if err := place.RemoveLeftovers(t.Context(), folders); err != nil {
		t.Errorf("before the folder is made: %v", err)
	}
}

var must = require.NoError
