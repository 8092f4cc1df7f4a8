// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func fact[T any](value T) agentv1.Fact[T] {
	return agentv1.Fact[T]{Value: value, Source: "/file"}
}

// node has a value in each field.
func node() agentv1.Node {
	return agentv1.Node{
		AgentVersion: "v0.9.0", ConfigProblem: "gpu.nvidia.com/config=learning is not followed", Simulated: true,
		DriverVersion: fact("580.65.06"), CUDAVersion: fact("13.0"), OpenModules: fact(true), Peermem: fact(true),
		FabricManager: fact(true), FabricManagerRelease: fact("580.65.06"), Persistenced: fact(true), KernelVersion: fact("6.8.0-85-generic"),
		Controllers: fact([]string{"cpu", "dmem"}), HugePages: fact(map[string]uint64{"1048576kB": 4, "2048kB": 512}),
		TransparentHugePages: fact("madvise"), SwapBytes: fact(uint64(8589934592)), Governors: fact([]string{"performance"}),
		Memlock: fact("unlimited"), IOMMU: fact(true), RDMADevices: fact([]string{"mlx5_0"}), NUMANodes: fact(2), KernelLog: fact(true),
		ContainerdCDI: fact("true"), ContainerdSpecDirs: fact([]string{"/etc/cdi"}), CRIOSpecDirs: fact([]string{"/var/run/cdi"}), CPUManager: fact("static"),
		GPUs: []agentv1.GPU{{
			Address: "0000:1b:00.0", UUID: "GPU-11111111-2222-3333-4444-555555555555", Model: "NVIDIA H100 80GB HBM3",
			Persistence: fact("on"), ECC: fact("on"), NVSwitch: fact(true), FabricState: fact("completed"),
			Clocks:    fact(agentv1.Clocks{SMMHz: 900, MaxSMMHz: 1980, Reasons: []string{"gpu-idle", "sw-power-cap"}}),
			LinkWidth: fact(8), MaxLinkWidth: fact(16), LinkSpeed: fact("2.5 GT/s PCIe"), MaxLinkSpeed: fact("32.0 GT/s PCIe"),
			IOMMUType: fact("DMA-FQ"), ACSRedirect: fact([]string{"0000:17:02.0"}),
			Links: map[string]int{"0000:43:00.0": 18}, PCIeSwitch: "0000:16:00.0",
		}},
	}
}

// report has a value in each field of its second row.
func report() agentv1.Report {
	return agentv1.Report{Omitted: 3, Foreign: foreign(), Rows: []agentv1.Row{
		{Labels: agentv1.Labels{Namespace: "team-a", Claim: "one", Device: "gpu-1b-00"}},
		{
			Labels: agentv1.Labels{
				Namespace: "team-a", Claim: "one", Pod: "trainer", Container: "main", Device: "gpu-1b-00",
				UUID: "GPU-11111111-2222-3333-4444-555555555555", Enforcement: "hardware",
			},
			MemoryUsedBytes: new(uint64(1 << 30)), MemoryLimitBytes: new(uint64(80 << 30)), MemoryPromisedBytes: new(uint64(80 << 30)),
			ComputePromised: new(.5), SMUsed: new(.25), Healthy: new(false),
		},
	}}
}

// foreign has a value in each field of its first device.
func foreign() *agentv1.Foreign {
	return &agentv1.Foreign{Checked: time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC), Devices: []agentv1.ForeignDevice{
		{Device: "gpu-43-00", Processes: 1, PIDs: []int{4711}, MemoryUsedBytes: new(uint64(4 << 30))}, {Device: "gpu-1b-00"},
	}}
}

func devices() agentv1.Devices {
	return agentv1.Devices{"gpu-1b-00": {
		"productName":       {StringValue: new("NVIDIA H100 80GB HBM3")},
		"nvlinkLinks":       {IntValue: new(int64(18))},
		"persistenceMode":   {BoolValue: new(true)},
		"driverVersion":     {VersionValue: new("580.65.6")},
		"example.com/lists": resourceapi.DeviceAttribute{IntValues: []int64{0, 1}},
	}}
}

// The files are what agents of released versions serve: programs of users read it.
func TestTheJSONOfTheAnswers(t *testing.T) {
	unknown := agentv1.Fact[string]{Source: "NVML", Unknown: "timed out"}
	for name, answer := range map[string]any{
		"node": node(), "node-empty": agentv1.Node{GPUs: []agentv1.GPU{{}}}, "fact-unknown": unknown,
		"claims": report(), "claims-empty": agentv1.Report{Rows: []agentv1.Row{}},
		"devices": devices(),
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.MarshalIndent(answer, "", "  ")
			must(t, err)
			got, file := string(text)+"\n", filepath.Join("testdata", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(file, []byte(got), 0o644)) //nolint:gosec // a golden file
			}
			want, err := os.ReadFile(file)
			must(t, err)
			require.Same(t, file, string(want), got)
			back := reflect.New(reflect.TypeOf(answer))
			must(t, json.Unmarshal(want, back.Interface()))
			require.Same(t, "read from "+file, answer, back.Elem().Interface())
		})
	}
}

// A field without a value would be missing in the golden files.
func TestTheExamplesHaveAValueInEachField(t *testing.T) {
	checkFilled(t, "Node", reflect.ValueOf(node()))
	checkFilled(t, "Row", reflect.ValueOf(report().Rows[1]))
	checkFilled(t, "ForeignDevice", reflect.ValueOf(foreign().Devices[0]))
}

func checkFilled(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch {
	case v.IsZero():
		t.Errorf("%s has no value in the example", path)
	case v.Kind() == reflect.Slice:
		checkFilled(t, path, v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Unknown" {
				checkFilled(t, path+"."+name, v.Field(i))
			}
		}
	}
}

var must = require.NoError
