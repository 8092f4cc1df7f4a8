// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAShareOfUnknownSizeHidesWhatIsStranded(t *testing.T) {
	published := []resourceslice.Slice{{Devices: []resourceapi.Device{{Name: "gpu-1b-00"}, {Name: "gpu-43-00"}}}}
	lost := whole()
	lost.Terms.Share = &share.Amount{}
	got := usage.Stranded(published, []claim.Claim{{Devices: []claim.Device{lost}}})
	if _, other := got["gpu-43-00"]; len(got) != 1 || !other {
		t.Errorf("got %v, want a value of the other GPU alone", got)
	}
}

func TestWhatADeviceCosts(t *testing.T) {
	seat := client(20, 25)
	seat.Name = kindtest.Name("gpu-1b-00-seat")
	part := partition(0)
	shareOfPart := partition(0)
	shareOfPart.Terms = client(5, 0).Terms
	lost := whole()
	lost.Terms.Share = &share.Amount{}
	for name, c := range map[string]struct {
		device claim.Device
		want   float64
	}{
		"a whole GPU":                        {whole(), 1},
		"a share":                            {shareOf(20, 0), .25},
		"a slot":                             {slots(1), .25},
		"a slot of an older release":         {slots(0), .25},
		"three slots":                        {slots(3), .75},
		"a seat":                             {seat, .25},
		"a MIG device of a GPU in MIG only":  {part, .125},
		"a share of it":                      {shareOfPart, .0625},
		"a claim whose record is lost":       {lost, 0},
		"all GPUs, to monitor them":          {claim.Device{Name: kindtest.Name("node-gpus")}, 0},
		"a GPU that is not published so far": {claim.Device{Name: kindtest.Name("gpu-ee-00")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.device.Class = "class"
			var got float64
			for _, charge := range node().Charges("team", []claim.Device{c.device}) {
				if got += charge.GPUs; charge.Account != (usage.Account{Namespace: "team", Class: "class"}) {
					t.Errorf("charged to %+v", charge.Account)
				}
			}
			if got != c.want {
				t.Errorf("%v of a GPU, want %v", got, c.want)
			}
		})
	}
}

func TestAMeterNeitherJumpsNorGoesBack(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	m := usage.NewMeter(now)
	charge := func(namespace, class string, gpus float64) []usage.Charge {
		return []usage.Charge{{Account: usage.Account{Namespace: namespace, Class: class}, GPUs: gpus}}
	}
	a, b := charge("a", "gpu", 1), charge("b", "share", .5)
	step := func(seconds int) { now.SetTime(now.Now().Add(time.Duration(seconds) * time.Second)) }
	want := func(held map[types.UID][]usage.Charge, a, b float64) {
		t.Helper()
		got := m.Set(held)
		if got[usage.Account{Namespace: "a", Class: "gpu"}] != a || got[usage.Account{Namespace: "b", Class: "share"}] != b {
			t.Errorf("%v, want %v and %v", got, a, b)
		}
	}
	step(100)
	want(map[types.UID][]usage.Charge{"a": a}, 0, 0) // held by an earlier process
	step(10)
	m.Hold("b", b)
	step(10)
	m.Hold("b", b) // prepared again
	m.Release("a")
	m.Release("a")
	step(10)
	m.Release("b") // between two scrapes
	step(10)
	want(nil, 20, 10)
	want(nil, 20, 10)
	m.Hold("b", b)
	step(-1000)
	want(map[types.UID][]usage.Charge{"b": b}, 20, 10)
	step(2)
	want(nil, 20, 11)
}

func TestAMeterHasALimitOfAccounts(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	m := usage.NewMeter(now)
	const namespaces = 1500
	var last map[usage.Account]float64
	for i := range namespaces {
		m.Hold("a", []usage.Charge{{Account: usage.Account{Namespace: fmt.Sprint(i)}, GPUs: 1}})
		now.SetTime(now.Now().Add(time.Second))
		last = m.Set(nil)
	}
	var sum float64
	for _, seconds := range last {
		sum += seconds
	}
	require.Same(t, "accounts, their sum, and the account without names", []float64{1001, namespaces, 500}, []float64{float64(len(last)), sum, last[usage.Account{}]})
}
