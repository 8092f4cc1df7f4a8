// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestADeviceIsOneOfTheNewestSlices(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "whole", "")
	id := fleet.DeviceID{Driver: v1alpha1.DriverName, Pool: "a", Device: "gpu-18-00"}
	d := w.Fleet().Device(id)
	if d.Published == nil || len(d.Holders) != 1 {
		t.Errorf("got %+v", d)
	}
	// A later generation of the pool does not have it.
	newer := w.Slices[0].DeepCopy()
	newer.Name += "-newer"
	newer.Spec.Pool.Generation++
	newer.Spec.Devices = newer.Spec.Devices[1:]
	w.Slices = append(w.Slices, newer)
	if d = w.Fleet().Device(id); d.Published != nil || len(d.Holders) != 1 {
		t.Errorf("got %+v, want the holder of a device that is not published", d)
	}
}

func TestNearestNames(t *testing.T) {
	names := []string{"mps.nvidia.com", "mig.nvidia.com", "gpu.nvidia.com", "train-7d9f-x2x", "other"}
	for misspelt, want := range map[string]string{
		"mps.nvidia.con": "mps.nvidia.com",
		"train":          "train-7d9f-x2x",
		"train-7d9f":     "train-7d9f-x2x",
		"zzz":            "",
		"other":          "",
	} {
		if got := strings.Join(fleet.Nearest(misspelt, names)[:min(1, len(fleet.Nearest(misspelt, names)))], ""); got != want {
			t.Errorf("Nearest(%s) = %s, want %s", misspelt, got, want)
		}
	}
	if got := fleet.Nearest("gpu.nvidia.co", names); !slices.Contains(got, "gpu.nvidia.com") || len(got) > 3 {
		t.Errorf("got %v", got)
	}
}

func TestTheReasonOfATaintHasItsMeaning(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.Taint("gpu-18-00", "xid-79")
	f := w.Fleet()
	checks, err := f.NewSearch(0).Check(t.Context(), "a", fleettest.Claim("new", ""))
	require.NoError(t, err)
	got := f.Reasons(checks[0].Devices[0], checks[0].Exactly)
	if diff := cmp.Diff([]string{"the GPU has fallen off the bus (taint gpu.nvidia.com/unhealthy=xid-79:NoSchedule)"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
