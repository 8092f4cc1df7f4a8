// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestThePodsThatTheKubeletHasForClaims(t *testing.T) {
	const data = `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[` +
		`{"ClaimUID":"uid-a","ClaimName":"a","Namespace":"team","PodUIDs":{"pod-2":{},"pod-1":{}},"DriverState":{"gpu.nvidia.com":{"Devices":[]}}},` +
		`{"ClaimUID":"uid-b","ClaimName":"b","Namespace":"team","PodUIDs":{},"DriverState":{}}]}`
	signed := func(data string) string {
		text, err := json.Marshal(map[string]any{"Data": data, "Checksum": crc32.ChecksumIEEE([]byte(data))})
		must(t, err)
		return string(text)
	}
	for name, c := range map[string]struct {
		text string
		want map[types.UID][]types.UID
		err  error
	}{
		"claims":               {text: signed(data), want: map[types.UID][]types.UID{"uid-a": {"pod-1", "pod-2"}, "uid-b": nil}},
		"no claims":            {text: signed(`{"apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"}`), want: map[types.UID][]types.UID{}},
		"a later format":       {text: signed(strings.Replace(data, "k8s.io/v1", "k8s.io/v2", 1)), err: gpu.ErrNotSupported},
		"a damaged file":       {text: strings.Replace(signed(data), "pod-1", "pod-3", 1), err: gpu.ErrCorrupt},
		"half a file":          {text: signed(data)[:40], err: gpu.ErrCorrupt},
		"a file of another":    {text: signed("x"), err: gpu.ErrCorrupt},
		"no file, as at first": {err: fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), podresources.CheckpointName)
			if c.text != "" {
				must(t, os.WriteFile(path, []byte(c.text), 0o600))
			}
			got, err := podresources.Checkpoint(path).Pods()
			if diff := cmp.Diff(c.want, got); !errors.Is(err, c.err) || diff != "" {
				t.Errorf("%v, want %v; pods (-want +got):\n%s", err, c.err, diff)
			}
		})
	}
}

func TestThePodsThatHaveDevicesOfPlugins(t *testing.T) {
	const text = `{"Data":{"PodDeviceEntries":[` +
		`{"PodUID":"pod-1","ContainerName":"main","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["GPU-1::0","GPU-1::1"],"0":["GPU-2"]},"AllocResp":"eA=="},` +
		`{"PodUID":"pod-2","ContainerName":"main","ResourceName":"nvidia.com/gpu.shared","DeviceIDs":{"-1":["GPU-1::2"]},"AllocResp":null},` +
		`{"PodUID":"pod-3","ContainerName":"main","ResourceName":"nvidia.com/mig-1g.10gb","DeviceIDs":{"1":["MIG-3"]},"AllocResp":null},` +
		`{"PodUID":"pod-4","ContainerName":"main","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["GPU-4"]},"AllocResp":null}],` +
		`"RegisteredDevices":{"nvidia.com/gpu":["GPU-1"]}},"Checksum":1}`
	path := filepath.Join(t.TempDir(), podresources.DeviceCheckpointName)
	_, err := podresources.DeviceCheckpoint(path).Pods()
	require.Error(t, "without a file", err, fs.ErrNotExist)
	for _, c := range []struct {
		text string
		want map[string][]types.UID
		err  error
	}{
		{text, map[string][]types.UID{"GPU-1": {"pod-1", "pod-2"}, "GPU-2": {"pod-1"}, "MIG-3": {"pod-3"}}, nil},
		{text[:90], nil, gpu.ErrCorrupt},
	} {
		must(t, os.WriteFile(path, []byte(c.text), 0o600))
		got, err := podresources.DeviceCheckpoint(path).Pods()
		if diff := cmp.Diff(c.want, got); !errors.Is(err, c.err) || diff != "" {
			t.Errorf("%v, want %v; pods (-want +got):\n%s", err, c.err, diff)
		}
	}
}
