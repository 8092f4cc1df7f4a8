// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/attribution"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

const gibi = 1 << 30

// podUID returns the UID of a pod with a number, as the API server makes them.
func podUID(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// addTask adds a process of a container that is the only one of the container.
func addTask(t *testing.T, proc procfs.Root, pid int, pod types.UID, container string) {
	t.Helper()
	dir := filepath.Join(string(proc), "proc", strconv.Itoa(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"stat":      fmt.Sprintf("%d (python) S 1%s 7\n", pid, strings.Repeat(" 0", 17)),
		"status":    fmt.Sprintf("Name:\tpython\nNSpid:\t%d\t1\n", pid),
		"cgroup":    fmt.Sprintf("0::/kubepods/pod%s/id%d\n", pod, pid),
		"mountinfo": "801 800 254:1 /var/lib/kubelet/pods/" + string(pod) + "/containers/" + container + "/1f2e3d4c /dev/termination-log rw - ext4 /dev/vda1 rw\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// ofClass makes the claim one for a request of the class, which pods use.
func ofClass(class string, c *resourceapi.ResourceClaim, pods ...int) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if memory, named := c.Status.Allocation.Devices.Results[0].ConsumedCapacity["memory"]; named {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": memory}}
	}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	for _, n := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: fmt.Sprintf("pod-%d", n), UID: podUID(n)})
	}
	return c
}

// publishes waits until the agent has its own slices.
func (r *running) publishes(t *testing.T) {
	t.Helper()
	changed, cancel := r.controller.Subscribe()
	defer cancel()
	for len(r.controller.Capacities()) == 0 {
		<-changed
	}
}

var uuidLabel = regexp.MustCompile(`uuid="(GPU|MIG)-[0-9a-f-]{36}"`)

// metricsOf returns the lines of the claims' metrics, with "GPU" and "MIG" as UUIDs.
func metricsOf(t *testing.T, handler http.Handler) []string {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(recorder.Body.String()) {
		if name, found := strings.CutPrefix(line, "gpu_dra_claim_"); found {
			lines = append(lines, uuidLabel.ReplaceAllString(strings.TrimSpace(name), `uuid="$1"`))
		}
	}
	return lines
}

// sample returns the line of a metric of a claim with its values in GiB or ratios.
func sample(metric, claim, device, uuid, enforcement, pod, container string, value float64) string {
	if strings.HasSuffix(metric, "_bytes") {
		value *= gibi
	}
	return fmt.Sprintf(`%s{claim=%q,container=%q,device=%q,enforcement=%q,namespace="team",pod=%q,uuid=%q} %s`, metric, claim, container, device, enforcement, pod, uuid, strconv.FormatFloat(value, 'g', -1, 64))
}

func TestTheMetricsHaveWhatContainersAllocate(t *testing.T) {
	t.Parallel()
	whole := ofClass("gpu.nvidia.com", claimFor("whole", "gpu-43-00"), 1)
	mig := ofClass("mig.nvidia.com", claimFor("mig", "gpu-1b-00-mig-1g-10gb-2"), 2)
	share := ofClass("mps.nvidia.com", shareFor("share", "gpu-52-00", "10Gi", "25"), 3)
	both := ofClass("mps.nvidia.com", with(shareFor("both", "gpu-52-00", "20Gi", "0"), `"kind":"ShareConfig","processes":2`), 4, 5)
	slot, idle := ofClass("timeslice.nvidia.com", slotFor("slot", "gpu-61-00-ts"), 6), ofClass("timeslice.nvidia.com", slotFor("idle", "gpu-61-00-ts"), 7)
	n := newNode(t, whole, mig, share, both, slot, idle)
	n.nameSlices(t)
	n.Offer = "share,mig,timeslice"
	n.supervise(t)
	a := n.start(t)
	a.publishes(t)
	for _, c := range []*resourceapi.ResourceClaim{whole, mig, share, both, slot, idle} {
		if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
			t.Fatal(got.Error)
		}
	}
	// A pod that joined the claim later, without a call of the kubelet.
	joined := ofClass("mps.nvidia.com", both.DeepCopy(), 8)
	if _, err := n.client.ResourceV1().ResourceClaims("team").Update(t.Context(), joined, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	options := a.usageOptions(t.Context(), a.host, a.claims, a.accounts)
	options.Proc, options.Containers = procfs.Root(t.TempDir()), nil
	a.usage = attribution.New(options)
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []struct {
		gpu, pod  int
		container string
		nvmlsim.Process
	}{
		{1, 1, "main", nvmlsim.Process{MemoryBytes: 3 * gibi, SMPercent: 25}},
		{1, 1, "main", nvmlsim.Process{MemoryBytes: 4 * gibi, SMPercent: 50}},
		{1, 1, "side", nvmlsim.Process{MemoryBytes: 5 * gibi}},
		{0, 2, "main", nvmlsim.Process{MemoryBytes: 6 * gibi, Device: n.uuids(t)[0]}},
		{2, 3, "main", nvmlsim.Process{MemoryBytes: 7 * gibi, MPSClient: true}},
		{2, 4, "one", nvmlsim.Process{MemoryBytes: 1 * gibi, MPSClient: true, SMPercent: 10}},
		{2, 5, "two", nvmlsim.Process{MemoryBytes: 2 * gibi, MPSClient: true}},
		{2, 8, "late", nvmlsim.Process{MemoryBytes: 3 * gibi, MPSClient: true}},
		{3, 6, "main", nvmlsim.Process{MemoryBytes: 30 * gibi, SMPercent: 100}},
	} {
		p.PID = 1000000 + i
		addTask(t, options.Proc, p.PID, podUID(p.pod), p.container)
		if err := sim.AddProcess(p.gpu, p.Process); err != nil {
			t.Fatal(err)
		}
	}
	all := 80928. / 1024
	want := []string{
		sample("compute_promised_ratio", "both", "gpu-52-00", "GPU", "cooperative", "", "", 0),
		sample("compute_promised_ratio", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("compute_promised_ratio", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 16./132),
		sample("compute_promised_ratio", "share", "gpu-52-00", "GPU", "cooperative", "", "", .25),
		sample("compute_promised_ratio", "slot", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("compute_promised_ratio", "whole", "gpu-43-00", "GPU", "hardware", "", "", 1),
		sample("healthy", "both", "gpu-52-00", "GPU", "cooperative", "", "", 1),
		sample("healthy", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 1),
		sample("healthy", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 1),
		sample("healthy", "share", "gpu-52-00", "GPU", "cooperative", "", "", 1),
		sample("healthy", "slot", "gpu-61-00-ts", "GPU", "none", "", "", 1),
		sample("healthy", "whole", "gpu-43-00", "GPU", "hardware", "", "", 1),
		sample("memory_limit_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 9904./1024),
		sample("memory_limit_bytes", "whole", "gpu-43-00", "GPU", "hardware", "", "", all),
		sample("memory_promised_bytes", "both", "gpu-52-00", "GPU", "cooperative", "", "", 20),
		sample("memory_promised_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "", "", 9904./1024),
		sample("memory_promised_bytes", "share", "gpu-52-00", "GPU", "cooperative", "", "", 10),
		sample("memory_promised_bytes", "whole", "gpu-43-00", "GPU", "hardware", "", "", all),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-4", "one", 1),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-5", "two", 2),
		sample("memory_used_bytes", "both", "gpu-52-00", "GPU", "cooperative", "pod-8", "late", 3),
		sample("memory_used_bytes", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("memory_used_bytes", "mig", "gpu-1b-00-mig-1g-10gb-2", "MIG", "hardware", "pod-2", "main", 6),
		sample("memory_used_bytes", "share", "gpu-52-00", "GPU", "cooperative", "pod-3", "main", 7),
		sample("memory_used_bytes", "slot", "gpu-61-00-ts", "GPU", "none", "pod-6", "main", 30),
		sample("memory_used_bytes", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "main", 7),
		sample("memory_used_bytes", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "side", 5),
		"rows_invalid 0",
		"rows_omitted 0",
		sample("sm_used_ratio", "both", "gpu-52-00", "GPU", "cooperative", "pod-4", "one", .1),
		sample("sm_used_ratio", "idle", "gpu-61-00-ts", "GPU", "none", "", "", 0),
		sample("sm_used_ratio", "slot", "gpu-61-00-ts", "GPU", "none", "pod-6", "main", 1),
		sample("sm_used_ratio", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "main", .75),
		sample("sm_used_ratio", "whole", "gpu-43-00", "GPU", "hardware", "pod-1", "side", 0),
	}
	got := metricsOf(t, a.handler())
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// After a restart the class is in the record, and a gap is not charged.
func TestTimeIsChargedToTheClassAfterARestart(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
	account := usage.Account{Namespace: "team", Class: "gpu.nvidia.com"}
	grows := func(a *running) float64 {
		t.Helper()
		first := a.accounts.Accrue()[account]
		for {
			switch next := a.accounts.Accrue(); {
			case next[account] > first && len(next) == 1:
				return first
			case t.Context().Err() != nil || len(next) > 1:
				t.Fatalf("%v, want more than %v seconds of %+v", next, first, account)
			}
		}
	}
	before := grows(a)
	n.mustStop(t, a)
	a = n.start(t)
	a.publishes(t)
	if after := grows(a); after > before+10 {
		t.Errorf("%v seconds after the restart, %v before", after, before)
	}
	if err := a.kubelet.Unprepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ended := a.accounts.Accrue()[account]
	if again := a.accounts.Accrue()[account]; again != ended {
		t.Errorf("%v seconds, and then %v of a claim that has ended", ended, again)
	}
}

func TestAClaimPaysFromItsPreparationToItsRelease(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	paid := attribution.Accounts{Pods: a.accounts.Pods, Meter: usage.NewMeter(now), Claims: a.Held, Node: a.accounts.Node}
	passes := func() { now.SetTime(now.Now().Add(time.Minute)) }
	passes()
	devices, err := a.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	paid.Held(c, devices)
	passes()
	paid.Released(c.UID)
	passes()
	if diff := cmp.Diff(map[usage.Account]float64{{Namespace: "team", Class: "gpu.nvidia.com"}: 60}, paid.Meter.Set(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheMetricsShowEnergyAndSlowClocks(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-43-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.SlowDown(1, "HwThermalSlowdown"); err != nil {
		t.Fatal(err)
	}
	_, text := get(t, a.agent, "/metrics")
	text = uuidLabel.ReplaceAllString(text, `uuid="$1"`)
	for _, want := range []string{
		`gpu_dra_device_clock_limited{device="gpu-1b-00",reason="hw-thermal-slowdown",uuid="GPU"} 0`,
		`gpu_dra_device_clock_limited{device="gpu-43-00",reason="hw-thermal-slowdown",uuid="GPU"} 1`,
		`gpu_dra_device_clock_limited{device="gpu-43-00",reason="sw-power-cap",uuid="GPU"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// The first scrape reads the counters, and the next ones charge for the difference.
	const charged = `gpu_dra_claim_energy_joules_total{class="gpu.nvidia.com",namespace="team"} `
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !strings.Contains(text, charged) {
		if ctx.Err() != nil {
			t.Fatalf("/metrics lacks %s", charged)
		}
		_, text = get(t, a.agent, "/metrics")
	}
}

func TestTheMetricsShowAFault(t *testing.T) {
	t.Parallel()
	c := claimFor("one", "gpu-43-00")
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	if got := a.prepare(t, c)[string(c.UID)]; got.Error != "" {
		t.Fatal(got.Error)
	}
	sim, err := nvmlsim.Open(n.SimState)
	if err != nil {
		t.Fatal(err)
	}
	a.device(t, "gpu-43-00", func(d state.DeviceHealth) bool { return d.Reason == "xid-119" }, func() error { return sim.ReportXID(1, 119) })
	_, text := get(t, a.agent, "/metrics")
	text = uuidLabel.ReplaceAllString(text, `uuid="$1"`)
	for _, want := range []string{
		`gpu_dra_device_healthy{cause="",device="gpu-1b-00",uuid="GPU"} 1`,
		`gpu_dra_device_healthy{cause="xid-119",device="gpu-43-00",uuid="GPU"} 0`,
		`gpu_dra_device_temperature_celsius{device="gpu-43-00",uuid="GPU"} 35`,
		"gpu_dra_claim_" + sample("healthy", "one", "gpu-43-00", "GPU", "hardware", "", "", 0),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
