// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestForeignProcessesByDevice(t *testing.T) {
	now := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	f := usage.NewForeign(testclock.NewFakePassiveClock(now))
	if got := f.Last(); got != nil {
		t.Errorf("before the first check: got %+v, want unknown", got)
	}
	on := func(device string, pid int, gib uint64) claim.ForeignProcess {
		return claim.ForeignProcess{Device: kindtest.Name(device), PID: pid, MemoryBytes: gib << 30}
	}
	// The driver does not report the memory of process 8, and gpu-04-00 was not checked.
	f.SetForeignProcesses([]claim.ForeignProcess{on("gpu-02-00", 12, 3), on("gpu-02-00", 11, 1), on("gpu-03-00", 7, 2), on("gpu-03-00", 8, 0)},
		[]kind.Name{kindtest.Name("gpu-01-00"), kindtest.Name("gpu-02-00"), kindtest.Name("gpu-03-00")})
	want := &agentv1.Foreign{Checked: now, Devices: []agentv1.ForeignDevice{
		{Device: "gpu-02-00", Processes: 2, PIDs: []int{11, 12}, MemoryUsedBytes: new(uint64(4 << 30))},
		{Device: "gpu-03-00", Processes: 2, PIDs: []int{7, 8}},
		{Device: "gpu-01-00"},
	}}
	require.Same(t, "foreign processes", want, f.Last())
	f.SetForeignProcesses(nil, nil)
	if got := f.Last(); got == nil || got.Devices == nil || len(got.Devices) != 0 {
		t.Errorf("after a check without an answer: got %+v, want no device", got)
	}
}

// A tenant decides how many processes run.
func TestForeignProcessesAreBounded(t *testing.T) {
	f := usage.NewForeign(testclock.NewFakePassiveClock(time.Now()))
	var found []claim.ForeignProcess
	var checked []kind.Name
	for i := range 255 {
		checked = append(checked, kindtest.Name(fmt.Sprintf("gpu-%02x-00", i)), kindtest.Name(fmt.Sprintf("gpu-%02x-01", i)))
	}
	for pid := range 1000 {
		found = append(found, claim.ForeignProcess{Device: kindtest.Name("gpu-fe-01"), PID: pid + 1})
	}
	f.SetForeignProcesses(found, checked)
	got := f.Last().Devices
	if len(got) != agentv1.MaxForeignDevices || got[0].Device != "gpu-fe-01" || got[0].Processes != 1000 || len(got[0].PIDs) != agentv1.MaxForeignPIDs {
		t.Errorf("got %d devices, the first %+v", len(got), got[0])
	}
}
