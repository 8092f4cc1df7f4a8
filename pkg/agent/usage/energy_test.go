// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestClaimsAreChargedForTheirPartOfTheEnergy(t *testing.T) {
	first, second := kindtest.Name("gpu-1b-00").Address, kindtest.Name("gpu-43-00").Address
	now := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	m := usage.NewMeter(now)
	step := func(seconds int) { now.SetTime(now.Now().Add(time.Duration(seconds) * time.Second)) }
	charge := func(namespace string, on gpu.PCIAddress, gpus float64) []usage.Charge {
		return []usage.Charge{{Account: usage.Account{Namespace: namespace}, GPU: on, GPUs: gpus}}
	}
	want := func(when string, readings, want map[string]float64) {
		t.Helper()
		byAddress := map[gpu.PCIAddress]float64{}
		for name, joules := range readings {
			byAddress[kindtest.Name(name).Address] = joules
		}
		got := map[string]float64{}
		for account, joules := range m.AddEnergy(byAddress) {
			got[account.Namespace] = joules
		}
		require.Same(t, when, want, got)
	}
	m.Hold("whole", charge("a", first, 1))
	m.Hold("half", charge("b", second, .5))
	step(10)
	want("energy before the first reading", map[string]float64{"gpu-1b-00": 5000, "gpu-43-00": 100}, map[string]float64{})
	step(10)
	want("a whole GPU and a half", map[string]float64{"gpu-1b-00": 6000, "gpu-43-00": 300}, map[string]float64{"a": 1000, "b": 100})
	want("again at the same time", map[string]float64{"gpu-1b-00": 6100, "gpu-43-00": 300}, map[string]float64{"a": 1000, "b": 100})
	step(5)
	m.Release("whole")
	step(5)
	want("held for half of the time", map[string]float64{"gpu-1b-00": 7000}, map[string]float64{"a": 1500, "b": 100})
	step(10)
	want("a GPU that has not answered in between", map[string]float64{"gpu-1b-00": 8000, "gpu-43-00": 700}, map[string]float64{"a": 1500, "b": 300})
	step(10)
	want("the driver was loaded again", map[string]float64{"gpu-43-00": 50}, map[string]float64{"a": 1500, "b": 300})
	step(10)
	want("the next reading", map[string]float64{"gpu-43-00": 150}, map[string]float64{"a": 1500, "b": 350})
}
