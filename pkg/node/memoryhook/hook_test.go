// SPDX-License-Identifier: Apache-2.0

package memoryhook_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/memoryhook"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const (
	device = "uid-gpu-1b-00"
	state  = `{"ociVersion":"1.2.0","id":"a-container","status":"creating","pid":1}`
)

func newHook(t *testing.T, folder string, set func(context.Context, *os.File, containerlimits.Limit) error) memoryhook.Hook {
	t.Helper()
	h := memoryhook.Hook{
		Limits: containerlimits.Folder(filepath.Join(t.TempDir(), "limits")), Device: device,
		GPU: gpu.PCIAddress{Bus: 0x1b}, Bytes: 1 << 30, Containers: 1,
		CgroupOf: func(int) (string, error) { return folder, nil }, Set: set,
	}
	must(t, h.Limits.Open(device))
	return h
}

// The limit would be that of the whole node.
func TestTheRootOfTheCgroupsGetsNoLimit(t *testing.T) {
	root, err := cgroup.Root()
	if errors.Is(err, gpu.ErrNotSupported) {
		t.Skip(err)
	}
	must(t, err)
	if id, err := cgroup.Lookup(root); err != nil || id != cgroup.RootID {
		t.Skipf("this machine shows no root of the cgroups: %d, %v", id, err)
	}
	h := newHook(t, root, func(context.Context, *os.File, containerlimits.Limit) error {
		t.Error("a limit was set")
		return nil
	})
	require.Error(t, "Run", h.Run(t.Context(), strings.NewReader(state)), gpu.ErrNotSupported)
}

var must = require.NoError
