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
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// seatMi is the memory in Mi of one of four seats of an A100 with 80972Mi.
const seatMi = 80972 / 4

func TestPodsOfMPSReplicasHaveSeats(t *testing.T) {
	runOn(t, "gpu-07-00-seat", "dgx-a100", "--offer=share,seat")
	seatsServe(t, "nvidia.com/gpu.shared")
	ns := namespaceFor(t, "seats")
	pods := []string{"seat-0", "seat-1", "seat-2", "seat-3"}
	for _, name := range pods {
		apply(t, ns, pod(name, "", "nvidia.com/gpu.shared: 1"))
		ready(t, ns, name)
	}
	byContainer := report(t, ns)
	var rows []harness.Row
	for _, name := range pods {
		row := byContainer[name+"/main"]
		if !strings.HasSuffix(row.Device, "-seat") {
			t.Errorf("%s has %s, want a seat", name, row.Device)
		}
		rows = append(rows, row)
	}
	uuid := oneGPU(t, rows...)
	limit := int64(seatMi << 20)
	for _, name := range pods {
		client := ask(t, ns, name, "--memory", "18Gi")
		if client.Client.ActiveThreadPercentage != 25 || client.Limit() != limit || client.AllocatedBytes != 18*gi {
			t.Errorf("%s is held to %v %% and %d bytes, and got %d; want 25 %%, %d and 18Gi", name, client.Client.ActiveThreadPercentage, client.Limit(), client.AllocatedBytes, limit)
		}
		wantRefused(t, ns, name, limit)
	}

	t.Run("the next pod has a seat of another GPU", func(t *testing.T) {
		apply(t, ns, pod("next", "", "nvidia.com/gpu.shared: 1"))
		ready(t, ns, "next")
		if row := report(t, ns)["next/main"]; row.UUID == uuid || !strings.HasSuffix(row.Device, "-seat") {
			t.Errorf("it has %s of %s, whose seats are taken", row.Device, row.UUID)
		}
		remove(t, ns, "next")
	})
	t.Run("a claim has two seats of one GPU", func(t *testing.T) {
		apply(t, ns, of("seat.nvidia.com", claim("two", "capacity: {requests: {seats: 2}}", ""))+pod("two", "two", ""))
		ready(t, ns, "two")
		if client := ask(t, ns, "two", "--memory", "1Gi"); client.Client.ActiveThreadPercentage != 50 || client.Limit() != 2*seatMi<<20 {
			t.Errorf("it is held to %v %% and %d bytes, want 50 %% and %d", client.Client.ActiveThreadPercentage, client.Limit(), 2*seatMi<<20)
		}
		remove(t, ns, "two")
	})
	t.Run("a request for two replicas is refused with the reason", func(t *testing.T) {
		apply(t, ns, pod("replicas", "", "nvidia.com/gpu.shared: 2"))
		_, err := cluster.WaitEvent(t.Context(), ns, "replicas", "2 seats in one request")
		must(t, err)
		remove(t, ns, "replicas")
	})
	t.Run("whole GPUs wait while one is in seats and start when it is free", func(t *testing.T) {
		apply(t, ns, pod("all", "", "nvidia.com/gpu: 8"))
		_, err := cluster.Unschedulable(t.Context(), ns, "all")
		must(t, err)
		remove(t, ns, pods...)
		ready(t, ns, "all")
		remove(t, ns, "all")
	})
	nothingLeft(t)
}

// seatsServe moves an extended resource from time slices' class to that of seats until
// the test ends. It takes two upgrades each way: in one, Kubernetes could lose it.
func seatsServe(t *testing.T, resource string) {
	t.Helper()
	upgrade := func(value string) {
		_, err := cluster.Helm(context.WithoutCancel(t.Context()), "upgrade", "--reuse-values", "--set", value, harness.Namespace, "deployments/helm/gpu-dra-driver")
		must(t, err)
	}
	upgrade("deviceClasses.timeslice.extendedResource=")
	upgrade("deviceClasses.seat.extendedResource=" + resource)
	t.Cleanup(func() {
		upgrade("deviceClasses.seat.extendedResource=")
		upgrade("deviceClasses.timeslice.extendedResource=" + resource)
	})
}

func TestTimeSlicesWithMemory(t *testing.T) {
	runOn(t, "gpu-07-00-ts", "dgx-a100", "--offer=share,mig,timeslice,seat,monitor", "--mig-allow-reset")
	ns := namespaceFor(t, "slices-memory")
	slice := func(name, memory string) string {
		return of("timeslice.nvidia.com", claim(name, "capacity: {requests: {memory: "+memory+"}}", "")) + pod(name, name, "")
	}
	for _, s := range []struct{ name, memory string }{{"large", "60Gi"}, {"other", "60Gi"}, {"small", "15Gi"}} {
		apply(t, ns, slice(s.name, s.memory))
		ready(t, ns, s.name)
	}
	apply(t, ns, pod("none", "", "nvidia.com/gpu.shared: 1"))
	ready(t, ns, "none")
	rows := report(t, ns)
	large, other, small := rows["large/main"], rows["other/main"], rows["small/main"]
	if large.UUID == other.UUID || small.UUID != large.UUID && small.UUID != other.UUID {
		t.Errorf("60Gi are of %s, another 60Gi of %s and 15Gi of %s; want the small one on either GPU", large.UUID, other.UUID, small.UUID)
	}
	for _, row := range []harness.Row{large, other, small, rows["none/main"]} {
		if !strings.HasSuffix(row.Device, "-ts") {
			t.Errorf("%s has %s, want a time slice", row.Pod, row.Device)
		}
	}
	wantMemoryTold(t, ns, "60Gi", "60Gi", "15Gi")

	t.Run("less than the smallest share is refused with the reason", func(t *testing.T) {
		apply(t, ns, slice("tiny", "100Mi"))
		_, err := cluster.WaitEvent(t.Context(), ns, "tiny", "the smallest share on this node has 1Gi")
		must(t, err)
		remove(t, ns, "tiny")
	})
	t.Run("a selector on memory without a type fails on no device", func(t *testing.T) {
		cleared(t, "deviceclass/every.example.com")
		apply(t, ns, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: every.example.com
spec:
  selectors:
  - cel: {expression: "device.driver == 'gpu.nvidia.com'"}
---
`+of("every.example.com", claim("huge", `selectors: [{cel: {expression: "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('1Ti')) >= 0"}}]`, ""))+pod("huge", "huge", ""))
		why, err := cluster.Unschedulable(t.Context(), ns, "huge")
		must(t, err)
		if !strings.Contains(why, "cannot allocate all claims") {
			t.Errorf("the scheduler says %q, want that nothing fits", why)
		}
		remove(t, ns, "huge")
	})
	remove(t, ns, "large", "other", "small", "none")
	nothingLeft(t)
}

// wantMemoryTold waits until status.devices of the namespace's claims has these amounts
// of memory, in any order.
func wantMemoryTold(t *testing.T, namespace string, want ...string) {
	t.Helper()
	slices.Sort(want)
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		claims, err := cluster.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		var got []string
		for _, claim := range claims.Items {
			for _, device := range claim.Status.Devices {
				var data v1alpha1.DeviceData
				if device.Data == nil {
					continue
				}
				if err := json.Unmarshal(device.Data.Raw, &data); err != nil {
					return false, "", err
				}
				if data.Share != nil && data.Share.Memory != nil {
					got = append(got, data.Share.Memory.String())
				}
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want), fmt.Sprintf("status.devices has the memory %v, want %v", got, want), nil
	}))
}
