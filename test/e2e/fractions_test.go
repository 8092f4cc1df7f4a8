// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const gi = 1 << 30

func TestTheDemoOfFractions(t *testing.T) {
	offerFractions(t)
	t.Run("four servers of two namespaces share one GPU, each held to its share", testInference)
	t.Run("unequal shares each have limits of their own", testUnequal)
	t.Run("four notebooks have time slices of one GPU and the fifth starts when one ends", testNotebooks)
	t.Run("two claims share one MIG instance, which goes with the second", testMIGShares)
	t.Run("slices stay the same while claims come and go", testSlicesStay)
	t.Run("two pods on one claim have a GPU between them", testTwoPodsOneClaim)
	t.Run("pods of a device-plugin cluster share a GPU unchanged", testGPUShared)
	t.Run("containers that name different requests of one claim each get their own", testRequestsOfOneClaim)
	t.Run("a plain share is on the GPU of MPS shares and has no limits", testPlainShare)
	t.Run("a share that cannot be given is refused with the reason", testBadShares)
	t.Run("whole GPUs wait while one is shared and start when it is free", testWholeWaitsForShares)
}

// offerFractions runs an agent and a supervisor on a node that offers every way
// of sharing.
func offerFractions(t *testing.T) *harness.Supervisor {
	t.Helper()
	return runOn(t, "gpu-07-00-ts", "dgx-a100", "--offer=share,mig,timeslice", "--mig-allow-reset")
}

// runOn runs an agent, with the flags, and a supervisor on a model's hardware until
// the test ends. They replace the shared agent. It returns when the named device is
// published.
func runOn(t *testing.T, device, model string, flags ...string) *harness.Supervisor {
	t.Helper()
	return runAfter(t, func(context.Context) error { return nil }, device, model, flags...)
}

// runWithDriver is runOn with a driver that serves CUDA processes without MPS, too.
func runWithDriver(t *testing.T, device, model string, flags ...string) *harness.Supervisor {
	t.Helper()
	t.Cleanup(func() { must(t, agent.StopDriver(context.WithoutCancel(t.Context()))) })
	return runAfter(t, func(ctx context.Context) error { return agent.StartDriver(ctx) }, device, model, flags...)
}

// runAfter is runOn with a call before the agent starts.
func runAfter(t *testing.T, before func(context.Context) error, device, model string, flags ...string) *harness.Supervisor {
	t.Helper()
	nothingLeft(t)
	shared := agent
	must(t, agent.Stop(t.Context()))
	agent = cluster.NewAgent(model, flags...)
	supervisor := agent.Supervisor()
	t.Cleanup(func() {
		// The other tests need the shared agent, also if this one fails.
		ctx := context.WithoutCancel(t.Context())
		defer func() {
			must(t, supervisor.Stop(ctx))
			must(t, agent.Stop(ctx))
			agent = shared
			must(t, agent.Start(ctx))
		}()
		nothingLeft(t)
		noDaemons(t, supervisor)
	})
	must(t, before(t.Context()))
	must(t, agent.Start(t.Context()))
	published(t, device, true)
	return supervisor
}

// noDaemons waits until the supervisor runs none.
func noDaemons(t *testing.T, supervisor *harness.Supervisor) {
	t.Helper()
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		daemons, err := supervisor.Daemons(ctx)
		return len(daemons) == 0, fmt.Sprintf("daemons still run: %v", daemons), err
	}))
}

// held returns the limits of a container, as its CUDA client got them from the
// daemon.
func held(t *testing.T, namespace, pod string) harness.CUDA {
	t.Helper()
	client, err := cluster.CUDA(t.Context(), namespace, pod, "main")
	must(t, err)
	return client
}

// ask runs another CUDA client in a pod's container.
func ask(t *testing.T, namespace, pod string, args ...string) harness.CUDA {
	t.Helper()
	client, err := cluster.ExecCUDA(t.Context(), namespace, pod, "main", args...)
	must(t, err)
	return client
}

// oneGPU reports an error unless all of the rows have the same UUID, and returns
// it.
func oneGPU(t *testing.T, rows ...harness.Row) string {
	t.Helper()
	for _, row := range rows {
		if row.UUID != rows[0].UUID || row.UUID == "" || row.UUID == "-" {
			t.Errorf("%s has %s and %s has %s, want one GPU", rows[0].Pod, rows[0].UUID, row.Pod, row.UUID)
		}
	}
	return rows[0].UUID
}

func testInference(t *testing.T) {
	// The manifest names its namespaces.
	for _, ns := range []string{"vision", "language"} {
		namespaceFor(t, ns)
	}
	applyInTurn(t, "", "demo/fractions/inference.yaml")
	var rows []harness.Row
	for _, ns := range []string{"vision", "language"} {
		ready(t, ns, "server-0", "server-1")
		byContainer := report(t, ns)
		rows = append(rows, byContainer["server-0/main"], byContainer["server-1/main"])
		for _, pod := range []string{"server-0", "server-1"} {
			wantHeld(t, ns, pod, 25, 19*gi, 18*gi)
		}
		wantTold(t, ns, "MPS 25% 19Gi", "MPS 25% 19Gi")
	}
	wantRecorded(t, oneGPU(t, rows...), "25% 0=19456M", "25% 0=19456M", "25% 0=19456M", "25% 0=19456M")
	wantRefused(t, "vision", "server-0", 19*gi)
	// More than any share is refused to one that has dropped its limits, too.
	wantRefused(t, "vision", "server-0", 19*gi, "--without-limits")
	record, err := agent.Sim(t.Context(), "mps", "-o", "json")
	must(t, err)
	for _, asked := range []string{`"askedThreadPercentage": "25"`, `"askedMemoryLimit": "0=19456M"`} {
		// Four servers, the client that was refused, and not the one without.
		if got := strings.Count(record, asked); got != 5 {
			t.Errorf("the daemon's record has %s of %d clients, want 5: %s", asked, got, record)
		}
	}
}

func testUnequal(t *testing.T) {
	ns := namespaceFor(t, "fractions-unequal")
	applyInTurn(t, ns, "demo/fractions/unequal.yaml")
	pods := []string{"large", "small-0", "small-1", "small-2"}
	ready(t, ns, pods...)
	rows := report(t, ns)
	uuid := oneGPU(t, rows["large/main"], rows["small-0/main"], rows["small-1/main"], rows["small-2/main"])
	for _, pod := range pods {
		percent, limit, allocated := 20.0, int64(15*gi), int64(14*gi)
		if pod == "large" {
			percent, limit, allocated = 40, 30*gi, 28*gi
		}
		wantHeld(t, ns, pod, percent, limit, allocated)
	}
	wantRecorded(t, uuid, "40% 0=30720M", "20% 0=15360M", "20% 0=15360M", "20% 0=15360M")
	wantTold(t, ns, "MPS 40% 30Gi", "MPS 20% 15Gi", "MPS 20% 15Gi", "MPS 20% 15Gi")
	wantRefused(t, ns, "large", 30*gi)
	wantRefused(t, ns, "small-0", 15*gi)
}

func testNotebooks(t *testing.T) {
	ns := namespaceFor(t, "fractions-notebooks")
	t.Cleanup(func() {
		kubectl(t, "delete", "deviceclass", "notebook.example.com")
	})
	applyInTurn(t, ns, "demo/fractions/notebooks.yaml")
	running, waiting, err := cluster.Started(t.Context(), ns, 4, "notebook-0", "notebook-1", "notebook-2", "notebook-3", "notebook-4")
	must(t, err)
	byContainer := report(t, ns)
	var rows []harness.Row
	for _, pod := range running {
		rows = append(rows, byContainer[pod+"/main"])
	}
	uuid := oneTurn(t, rows...)
	_, err = cluster.Unschedulable(t.Context(), ns, waiting[0])
	must(t, err)
	if got := interval(t, uuid); got != "Short" {
		t.Errorf("the time slice of %s is %s, want Short as the class says", uuid, got)
	}
	remove(t, ns, running[0])
	ready(t, ns, waiting[0])
	remove(t, ns, append(running[1:], waiting[0])...)
	nothingLeft(t)
	if got := interval(t, uuid); got != "Default" {
		t.Errorf("the time slice of %s is %s after the last notebook, want Default", uuid, got)
	}
}

// interval is a GPU's time slice, as nvidia-smi lists it.
func interval(t *testing.T, uuid string) string {
	t.Helper()
	slice, err := agent.TimeSlice(t.Context(), uuid)
	must(t, err)
	return slice
}

func testMIGShares(t *testing.T) {
	ns := namespaceFor(t, "fractions-mig")
	// Counted twice, a share of 4 GiB leaves no room for another one on the MIG device.
	applyInTurn(t, ns, "demo/fractions/mig-shares.yaml")
	ready(t, ns, "half-0", "half-1")
	rows := report(t, ns)
	uuid := oneGPU(t, rows["half-0/main"], rows["half-1/main"])
	if !strings.HasPrefix(uuid, "MIG-") {
		t.Errorf("they share %s, want a MIG instance", uuid)
	}
	for _, pod := range []string{"half-0", "half-1"} {
		// 4096 of 9776Mi.
		wantHeld(t, ns, pod, 41, 4*gi, 3*gi)
	}
	wantRecorded(t, uuid, "41% 0=4096M", "41% 0=4096M")
	wantTold(t, ns, "MPS 41% 4Gi", "MPS 41% 4Gi")
	remove(t, ns, "half-0")
	if client := ask(t, ns, "half-1", "--memory", "100Mi"); client.Error.Name != "" {
		t.Errorf("the other share has ended with the first: %s", client.Error.Name)
	}
	remove(t, ns, "half-1")
	nothingLeft(t)
}

func testTwoPodsOneClaim(t *testing.T) {
	ns := namespaceFor(t, "fractions-together")
	apply(t, ns, "demo/fractions/two-pods-one-claim.yaml")
	ready(t, ns, "together-0", "together-1")
	rows := report(t, ns)
	uuid := oneGPU(t, rows["together-0/main"], rows["together-1/main"])
	for _, pod := range []string{"together-0", "together-1"} {
		wantHeld(t, ns, pod, 50, 30*gi, 28*gi)
	}
	wantRecorded(t, uuid, "50% 0=30720M", "50% 0=30720M")
	wantTold(t, ns, "MPS 50% 30Gi")
	if client := ask(t, ns, "together-0", "--memory", "29Gi", "--without-limits"); client.Limit() != 30*gi {
		t.Errorf("a client that drops its limits is held to %d bytes, want 30Gi, the daemon's", client.Limit())
	}
}

func testGPUShared(t *testing.T) {
	ns := namespaceFor(t, "fractions-shared")
	apply(t, ns, "demo/fractions/gpu-shared.yaml")
	ready(t, ns, "shared-0", "shared-1")
	rows := report(t, ns)
	oneTurn(t, rows["shared-0/main"], rows["shared-1/main"])
}

func testRequestsOfOneClaim(t *testing.T) {
	ns := namespaceFor(t, "fractions-requests")
	apply(t, ns, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: both
spec:
  devices:
    requests:
    - name: large
      exactly:
        deviceClassName: mps.nvidia.com
        capacity: {requests: {memory: 30Gi, compute: 60}}
    - name: small
      exactly:
        deviceClassName: mps.nvidia.com
        capacity: {requests: {memory: 10Gi, compute: 20}}
    constraints:
    - requests: [large, small]
      matchAttribute: gpu.nvidia.com/uuid
---
apiVersion: v1
kind: Pod
metadata:
  name: both
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  resourceClaims:
  - name: gpu
    resourceClaimName: both
  containers:
  - name: large
    image: localhost/gpu-dra-driver/gpu-probe:demo
    imagePullPolicy: IfNotPresent
    args: [cuda]
    resources: {claims: [{name: gpu, request: large}]}
  - name: small
    image: localhost/gpu-dra-driver/gpu-probe:demo
    imagePullPolicy: IfNotPresent
    args: [cuda]
    resources: {claims: [{name: gpu, request: small}]}
`)
	ready(t, ns, "both")
	for container, want := range map[string]float64{"large": 60, "small": 20} {
		client, err := cluster.CUDA(t.Context(), ns, "both", container)
		must(t, err)
		if client.Client.ActiveThreadPercentage != want {
			t.Errorf("the container %s is held to %v %%, want %v", container, client.Client.ActiveThreadPercentage, want)
		}
	}
}

func testPlainShare(t *testing.T) {
	ns := namespaceFor(t, "fractions-plain")
	apply(t, ns, share("limited", "10Gi", "")+pod("limited", "limited", ""))
	ready(t, ns, "limited")
	apply(t, ns, plainShare(t, `"strategy": "Plain"`)+pod("plain", "plain", ""))
	ready(t, ns, "plain")
	rows := report(t, ns)
	oneGPU(t, rows["limited/main"], rows["plain/main"])
	for pod, limits := range map[string]bool{"limited": true, "plain": false} {
		sight, err := cluster.Sight(t.Context(), ns, pod, "main")
		must(t, err)
		if _, has := sight.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]; has != limits {
			t.Errorf("%s has the environment %v, want limits: %t", pod, sight.Env, limits)
		}
	}
}

func testWholeWaitsForShares(t *testing.T) {
	ns := namespaceFor(t, "fractions-whole")
	apply(t, ns, share("share", "10Gi", "")+pod("share", "share", ""))
	ready(t, ns, "share")
	apply(t, ns, "demo/mig/eight-gpus.yaml")
	_, err := cluster.Unschedulable(t.Context(), ns, "eight-gpus")
	must(t, err)
	remove(t, ns, "share")
	ready(t, ns, "eight-gpus")
	sight, err := cluster.Sight(t.Context(), ns, "eight-gpus", "main")
	must(t, err)
	if got := len(slices.Compact(sight.GPUs())); got != 8 {
		t.Errorf("the container sees %d GPUs, want eight", got)
	}
}
