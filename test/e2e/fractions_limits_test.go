// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// wantHeld reports an error unless a pod's CUDA client has these limits, in percent
// and bytes. It must also have got the memory that it was to allocate.
func wantHeld(t *testing.T, namespace, pod string, percent float64, limit, allocated int64) {
	t.Helper()
	client := held(t, namespace, pod)
	if client.Client.ActiveThreadPercentage != percent || client.Limit() != limit {
		t.Errorf("%s/%s is held to %v %% and %d bytes, want %v %% and %d", namespace, pod, client.Client.ActiveThreadPercentage, client.Limit(), percent, limit)
	}
	if client.AllocatedBytes != allocated || client.Error.Name != "" {
		t.Errorf("%s/%s got %d bytes, want %d; refused: %q", namespace, pod, client.AllocatedBytes, allocated, client.Error.Name)
	}
}

// wantRefused reports an error unless one more client in a container is refused a
// Mi beyond the limit. The client has further arguments, and must not be refused
// for another reason.
func wantRefused(t *testing.T, namespace, pod string, limit int64, args ...string) {
	t.Helper()
	client := ask(t, namespace, pod, append(args, "--memory", fmt.Sprintf("%dMi", limit>>20+1))...)
	if want := fmt.Sprintf("its limit of %d MiB", limit>>20); !strings.Contains(client.Error.Message, want) {
		t.Errorf("a client in %s/%s that wants more than its limit got %d bytes and the error %q, want %q", namespace, pod, client.AllocatedBytes, client.Error.Message, want)
	}
}

// wantRecorded reports an error unless the clients of a device asked its daemon for
// these limits. The device is given by its UUID, and the limits are in any order:
// "25% 0=19456M".
func wantRecorded(t *testing.T, uuid string, want ...string) {
	t.Helper()
	out, err := agent.Sim(t.Context(), "mps", "-o", "json")
	must(t, err)
	var daemons []mpssim.Listed
	must(t, json.Unmarshal([]byte(out), &daemons))
	var got []string
	for _, daemon := range daemons {
		if !daemon.Running || daemon.Record == nil {
			continue
		}
		for _, server := range daemon.Record.Servers {
			for _, client := range server.Clients {
				on := slices.ContainsFunc(client.Devices, func(d mpssim.ClientDeviceRecord) bool { return d.UUID == uuid })
				if on && client.Ended == "" {
					got = append(got, client.AskedThreadPercentage+"% "+client.AskedMemoryLimit)
				}
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Same(t, "what the clients on "+uuid+" asked the daemon for", want, got)
}

// wantTold waits until status.devices of every claim of a namespace has limits. It
// reports an error unless they are these, in any order: "MPS 25% 19Gi".
func wantTold(t *testing.T, namespace string, want ...string) {
	t.Helper()
	var got []string
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		got = nil
		claims, err := cluster.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		for _, claim := range claims.Items {
			if len(claim.Status.Devices) != 1 || claim.Status.Devices[0].Data == nil {
				return false, "status.devices says nothing of " + claim.Name, nil
			}
			var data v1alpha1.DeviceData
			if err := json.Unmarshal(claim.Status.Devices[0].Data.Raw, &data); err != nil {
				return false, "", err
			}
			if data.Share == nil || data.Share.MemoryLimit == nil {
				return false, "", fmt.Errorf("status.devices of %s has no limits: %s", claim.Name, claim.Status.Devices[0].Data.Raw)
			}
			got = append(got, fmt.Sprintf("%s %d%% %s", data.Share.Strategy, data.Share.ThreadPercentage, data.Share.MemoryLimit))
		}
		return true, "", nil
	}))
	slices.Sort(got)
	slices.Sort(want)
	require.Same(t, "status.devices in "+namespace, want, got)
}

// oneTurn reports an error unless all rows have time slices of one GPU and see no
// other. It returns the GPU's UUID.
func oneTurn(t *testing.T, rows ...harness.Row) string {
	t.Helper()
	uuid := oneGPU(t, rows...)
	for _, row := range rows {
		if row.Device != rows[0].Device || !strings.HasSuffix(row.Device, "-ts") {
			t.Errorf("%s has %s and %s has %s, want time slices of one GPU", rows[0].Pod, rows[0].Device, row.Pod, row.Device)
		}
		if len(row.Saw) != 1 || !slices.Equal(row.Saw, rows[0].Saw) {
			t.Errorf("%s sees %v and %s sees %v, want one GPU", rows[0].Pod, rows[0].Saw, row.Pod, row.Saw)
		}
	}
	return uuid
}
