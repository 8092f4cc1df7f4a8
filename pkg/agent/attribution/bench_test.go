// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// BenchmarkScrape reports the CPU time of a scrape with 64 claims of a container each.
// The node has eight simulated GPUs. The time is from the processes to the text, without
// the records on the disk.
func BenchmarkScrape(b *testing.B) {
	const claims, gpus = 64, 8
	n := newUsageNode(b, "dgx-h100")
	found, err := n.driver.Snapshot(b.Context())
	must(b, err)
	node := usage.Node{GPUs: map[gpu.PCIAddress]usage.GPU{}}
	for _, g := range found.GPUs {
		node.GPUs[g.Address] = usage.NewGPU(g, true)
	}
	n.o.Node = func() usage.Node { return node }
	for i := range claims {
		g, name := found.GPUs[i%gpus], fmt.Sprintf("claim-%d", i)
		n.claims.held = append(n.claims.held, claim.Claim{
			Ref: claim.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}, Phase: claim.Prepared, Pods: []types.UID{podUID(i)},
			Devices: []claim.Device{{
				Name: kind.Whole(g.Address), UUID: g.UUID,
				Terms: share.Terms{Share: &share.Amount{Memory: 8 * gibi}},
			}},
		})
		pid := 1000000 + i
		n.tasks.add(pid, podUID(i), fmt.Sprintf("container-%d", i), "main")
		must(b, n.sim.AddProcess(i%gpus, nvmlsim.Process{PID: pid, MemoryBytes: gibi, SMPercent: 10}))
	}
	handler := telemetry.Handler(telemetry.NewMetrics(nil), telemetry.State{
		SeesPods:   func() bool { return true },
		ClaimsHeld: func() (int, error) { return claims, nil }, Devices: func() map[string]int { return nil }, Phases: func() map[string]int { return nil },
		ConfigProblem: func() bool { return false }, GPUs: func() []telemetry.GPUHealth { return nil }, ShareSeconds: func() map[usage.Account]float64 { return nil },
		Power: func() telemetry.Power { return telemetry.Power{} },
		Usage: func() agentv1.Report {
			report, err := n.Read(b.Context())
			if err != nil || len(report.Rows) != 2*claims {
				b.Fatalf("%d rows, %v", len(report.Rows), err)
			}
			return report
		},
	}, nil, nil)
	request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
	before := cpuTime(b)
	for b.Loop() {
		recorder := httptest.NewRecorder()
		if handler.ServeHTTP(recorder, request); recorder.Code != http.StatusOK {
			b.Fatalf("%d: %s", recorder.Code, recorder.Body)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
