// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
)

const gibi = 1 << 30

// podUID returns the UID of a pod with a number, as the API server makes them.
func podUID(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

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
	changed, cancel := r.observers.controller.Subscribe()
	defer cancel()
	for len(r.observers.controller.Capacities()) == 0 {
		<-changed
	}
}

var uuidLabel = regexp.MustCompile(`uuid="(GPU|MIG)-[0-9a-f-]{36}"`)

// sample returns the line of a metric of a claim with its values in GiB or ratios.
func sample(metric, claim, device, uuid, enforcement, pod, container string, value float64) string {
	if strings.HasSuffix(metric, "_bytes") {
		value *= gibi
	}
	return fmt.Sprintf(`%s{claim=%q,container=%q,device=%q,enforcement=%q,namespace="team",pod=%q,uuid=%q} %s`, metric, claim, container, device, enforcement, pod, uuid, strconv.FormatFloat(value, 'g', -1, 64))
}

// After a restart the class is in the record, and a gap is not charged.
func TestTimeIsChargedToTheClassAfterARestart(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-1b-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	a.mustPrepare(t, c)
	account := usage.Account{Namespace: "team", Class: "gpu.nvidia.com"}
	grows := func(a *running) float64 {
		t.Helper()
		first := a.observers.accounts.Accrue()[account]
		for {
			switch next := a.observers.accounts.Accrue(); {
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
	a.unprepare(t, c)
	ended := a.observers.accounts.Accrue()[account]
	if again := a.observers.accounts.Accrue()[account]; again != ended {
		t.Errorf("%v seconds, and then %v of a claim that has ended", ended, again)
	}
}

func TestTheMetricsShowEnergyAndSlowClocks(t *testing.T) {
	t.Parallel()
	c := ofClass("gpu.nvidia.com", claimFor("one", "gpu-43-00"), 1)
	n := newNode(t, c)
	a := n.start(t)
	a.publishes(t)
	a.mustPrepare(t, c)
	sim := n.sim(t)
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
	a.mustPrepare(t, c)
	sim := n.sim(t)
	a.device(t, "gpu-43-00", func(d state.DeviceHealth) bool { return d.Cause == "xid-119" }, func() error { return sim.ReportXID(1, 119) })
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

func TestTheMetricsShowWhatIsStrandedAsKubectlDoes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.nameSlices(t)
	n.Offer = "share,mig,timeslice"
	n.supervise(t)
	a := n.start(t)
	a.publishes(t)
	most := n.memory(t, "gpu-43-00")
	most.Sub(resource.MustParse("512Mi"))
	slot := shareFor("slot", "gpu-61-00-ts", "0", "0")
	slot.Status.Allocation.Devices.Results[0].ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"slots": resource.MustParse("1")}
	objects := fleet.Objects{Claims: []*resourceapi.ResourceClaim{
		claimFor("whole", "gpu-1b-00"), shareFor("share", "gpu-43-00", most.String(), "0"), slot,
		claimFor("parts", "gpu-52-00-mig-3g-40gb-0", "gpu-52-00-mig-3g-40gb-4"), claimFor("part", "gpu-9d-00-mig-1g-10gb-6"),
	}}
	for _, c := range objects.Claims {
		if _, err := n.client.ResourceV1().ResourceClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.mustPrepare(t, objects.Claims...)
	for _, slice := range n.published(t) {
		objects.Slices = append(objects.Slices, &slice)
	}
	want, got := map[string]string{}, map[string]string{}
	for _, g := range fleet.New(objects, fleet.Options{Driver: "gpu.nvidia.com"}).Nodes()[0].GPUs {
		want["memory "+g.Name] = strconv.FormatFloat(g.Stranded.Memory.AsApproximateFloat64(), 'g', -1, 64)
		want["slices "+g.Name] = fmt.Sprint(g.Stranded.Slices)
	}
	_, text := get(t, a.agent, "/metrics")
	for _, m := range regexp.MustCompile(`(?m)^gpu_dra_device_(memory|slices)_stranded(?:_bytes)?{device="(.*?)",uuid="GPU-.*"} (.*)$`).FindAllStringSubmatch(text, -1) {
		got[m[1]+" "+m[2]] = m[3]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kubectl +metrics):\n%s", diff)
	}
	for of, value := range map[string]string{
		"memory gpu-1b-00": "0", "memory gpu-43-00": "5.36870912e+08", "memory gpu-61-00": "0", "slices gpu-52-00": "1", "slices gpu-9d-00": "0", "slices gpu-1b-00": "0",
	} {
		if got[of] != value {
			t.Errorf("%s: got %s, want %s", of, got[of], value)
		}
	}
}
