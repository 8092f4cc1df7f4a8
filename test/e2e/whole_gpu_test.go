// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestTheDemoOfWholeGPUs(t *testing.T) {
	ns := namespaceFor(t, "whole-gpu")
	t.Cleanup(func() {
		kubectl(t, "delete", "deviceclass", "gpu-large")
	})
	apply(t, ns, "demo/whole-gpu")
	ready(t, ns, "one-gpu", "two-pods-a", "two-pods-b", "shared-claim", "by-memory", "gpu-large", "first-available")
	rows := report(t, ns)

	t.Run("each pod's container sees exactly the GPU its claim was given", func(t *testing.T) {
		for name, row := range rows {
			if row.Device == "Pending" {
				continue
			}
			if len(row.Saw) != 1 {
				t.Errorf("%s holds %s and sees %v, want one GPU", name, row.Device, row.Saw)
			}
			sight, err := cluster.Sight(t.Context(), ns, row.Pod, row.Container)
			must(t, err)
			if len(sight.Metadata) != 1 || sight.Metadata[0].Device != row.Device {
				t.Fatalf("%s: its metadata files speak of %v, want %s", name, sight.Metadata, row.Device)
			}
			if got := *sight.Metadata[0].Attributes["uuid"].StringValue; got != row.UUID {
				t.Errorf("%s: its metadata file says %s, want %s", name, got, row.UUID)
			}
			for _, device := range sight.Devices {
				// The simulator has no kernel driver; the device cgroup lets the
				// open through to its absence.
				if device.Type != "char" || device.Open == "EPERM" {
					t.Errorf("%s: %s is a %s device and opening it returns %s", name, device.Path, device.Type, device.Open)
				}
			}
			if !slices.ContainsFunc(sight.Libraries, func(l harness.Library) bool { return strings.HasPrefix(path.Base(l.Path), "libcuda.so.") }) {
				t.Errorf("%s: no libcuda is there: %v", name, sight.Libraries)
			}
		}
	})
	t.Run("pods of one template get GPUs of their own", func(t *testing.T) {
		holders := map[string]string{}
		for _, pod := range []string{"one-gpu/main", "two-pods-a/main", "two-pods-b/main", "by-memory/main", "gpu-large/main", "first-available/main", "shared-claim/trainer"} {
			if other, taken := holders[rows[pod].UUID]; taken {
				t.Errorf("%s and %s both hold %s", pod, other, rows[pod].UUID)
			}
			holders[rows[pod].UUID] = pod
		}
	})
	t.Run("containers that share a claim see the same GPU", func(t *testing.T) {
		trainer, profiler := rows["shared-claim/trainer"], rows["shared-claim/profiler"]
		if diff := cmp.Diff(trainer.Saw, profiler.Saw); diff != "" || trainer.UUID != profiler.UUID {
			t.Errorf("trainer has %s, profiler %s (-trainer +profiler):\n%s", trainer.UUID, profiler.UUID, diff)
		}
	})
	t.Run("firstAvailable takes the second choice where the first does not exist", func(t *testing.T) {
		if got := rows["first-available/main"].Request; got != "gpu/hopper" {
			t.Errorf("request %q was satisfied, want gpu/hopper", got)
		}
	})
	t.Run("a claim that cannot be met leaves its pod Pending with the scheduler's reason", func(t *testing.T) {
		reason, err := cluster.Unschedulable(t.Context(), ns, "nine-gpus")
		must(t, err)
		if !strings.Contains(reason, "cannot allocate all claims") {
			t.Errorf("reason %q does not speak of the claims", reason)
		}
	})
	t.Run("status.devices has the UUID, the PCI address and the condition Ready", func(t *testing.T) {
		must(t, waitDeviceStatus(t.Context(), ns, "shared-claim", rows["shared-claim/trainer"]))
	})
}

func TestTwentyPodsInPairsLeaveNothing(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "churn")
	for range 10 {
		apply(t, ns, "demo/whole-gpu/two-pods.yaml")
		ready(t, ns, "two-pods-a", "two-pods-b")
		remove(t, ns, "two-pods-a", "two-pods-b")
	}
	nothingLeft(t)
	claims, err := cluster.Client.ResourceV1().ResourceClaims(ns).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, claim := range claims.Items {
		if claim.Status.Allocation != nil {
			t.Errorf("claim %s still holds %v", claim.Name, claim.Status.Allocation.Devices.Results)
		}
	}
}

func TestTheAgentPublishesWhatItsNodeHas(t *testing.T) {
	devices, err := cluster.Devices(t.Context())
	must(t, err)
	var names []string
	for name := range devices {
		names = append(names, name)
	}
	want := []string{"gpu-1b-00", "gpu-43-00", "gpu-52-00", "gpu-61-00", "gpu-9d-00", "gpu-c3-00", "gpu-d1-00", "gpu-df-00"}
	require.Same(t, "devices", want, names, sorted)
	slices, err := cluster.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + harness.DriverName})
	must(t, err)
	if len(slices.Items) != 1 {
		t.Errorf("%d ResourceSlices, want all eight GPUs in one", len(slices.Items))
	}
}
