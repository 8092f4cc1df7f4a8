// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// used is the report of the agent of node "a": one container of the claim "half", a claim
// whose pod uses nothing yet, and a container of which the driver reports no use of multiprocessors.
const used = `{"rows": [
  {"namespace": "default", "claim": "half", "device": "gpu-3b-00", "memoryPromisedBytes": 7516192768},
  {"namespace": "default", "claim": "whole", "device": "gpu-18-00", "memoryUsedBytes": 0},
  {"namespace": "default", "claim": "half", "pod": "half", "container": "main", "device": "gpu-3b-00", "memoryUsedBytes": 3221225472, "smUsed": 0.25},
  {"namespace": "default", "claim": "half", "pod": "half", "container": "helper", "device": "gpu-3b-00", "memoryUsedBytes": 1073741824}
]}`

// foreign is the same report with the processes that no claim explains: two on gpu-3b-00, and
// an unknown number on gpu-18-00.
func foreign(devices string) string {
	checked := time.Now().Add(-100 * time.Hour).UTC().Format(time.RFC3339)
	return strings.TrimSuffix(used, "}") + `, "foreign": {"checked": "` + checked + `", "devices": [` + devices + `]}}`
}

func TestUsed(t *testing.T) {
	client := drivenWorld(t, shared(t), func(w http.ResponseWriter, r *http.Request) {
		if want := "/api/v1/namespaces/gpus/pods/agent-1:9000/proxy/v1/claims"; r.URL.Path != want {
			t.Errorf("path %s, want %s", r.URL.Path, want)
		}
		_, _ = w.Write([]byte(used))
	})
	for _, args := range [][]string{{"--used"}, {"get", "--used"}} {
		out, problems := run(t, client, args...)
		lines(t, out+problems, `
NODE GPU MODEL MODE CLAIMS MEMORY COMPUTE HEALTH USED SM USED FOREIGN
a gpu-18-00 Tesla T4 whole 1 14.6Gi/14.6Gi 100% ok 0.0Gi - -
a gpu-3b-00 Tesla T4 shared 1 7.0Gi/14.6Gi 50% ok 4.0Gi - -
a gpu-86-00 Tesla T4 free 0 0.0Gi/14.6Gi 0% ok - - -
a gpu-af-00 Tesla T4 free 0 0.0Gi/14.6Gi 0% ok - - -`)
	}
	out, problems := run(t, client, "who", "--used", "-n", "default", "-o", "wide")
	lines(t, out+problems, `
NAMESPACE POD CONTAINER CLAIM NODE DEVICE MEMORY COMPUTE HEALTH LIMITED BY USED SM USED FOREIGN LIMIT OF A PROCESS LIMIT OF A CONTAINER
default half main half a gpu-3b-00 7.0Gi 50% ok - 3.0Gi 25% - - -
default whole main whole a gpu-18-00 14.6Gi 100% ok - - - - - -`)
	out, problems = run(t, client, "usage", "--used")
	lines(t, out+problems, `
NAMESPACE CLAIMS GPUS MEMORY COMPUTE SLOTS GPU HOURS USED SM USED
default 2 1.5 21.6Gi 150% 0 - 4.0Gi -
TOTAL 2 1.5 21.6Gi 150% 0 - 4.0Gi -

4 GPUs, 2.5 idle, 0.0Gi of memory stranded`)
	if out, _ := run(t, client, "--used", "-o", "json"); !strings.Contains(out, `"memoryUsed": "4Gi"`) {
		t.Errorf("json: %s", out)
	}
}

func TestUsedShowsForeignProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		devices string
		// want is the column FOREIGN of gpu-18-00 and gpu-3b-00.
		want [2]string
	}{
		"processes on one device":    {`{"device": "gpu-3b-00", "processes": 2, "pids": [4711, 4712], "memoryUsedBytes": 2147483648}`, [2]string{"-", "2 processes, 2.0Gi, 4d4h ago"}},
		"no processes":               {`{"device": "gpu-18-00", "processes": 0}, {"device": "gpu-3b-00", "processes": 0}`, [2]string{"0", "0"}},
		"memory that is not known":   {`{"device": "gpu-18-00", "processes": 1, "pids": [1]}`, [2]string{"1 process, 4d4h ago", "-"}},
		"a number that cannot be":    {`{"device": "gpu-18-00", "processes": -1}`, [2]string{"-", "-"}},
		"a device of another node":   {`{"device": "gpu-99-00", "processes": 3}`, [2]string{"-", "-"}},
		"more memory than there can": {`{"device": "gpu-18-00", "processes": 1, "memoryUsedBytes": 18446744073709551615}`, [2]string{"1 process, 8589934592.0Gi, 4d4h ago", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := drivenWorld(t, shared(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(foreign(tc.devices))) })
			out, problems := run(t, client, "--used")
			got := strings.Split(out+problems, "\n")
			for i, want := range tc.want {
				if !strings.HasSuffix(got[i+1], " "+want) {
					t.Errorf("got %q, want it to end with %q", got[i+1], want)
				}
			}
			if out, _ := run(t, client, "who", "--used", "-A"); !strings.Contains(out, tc.want[0]) || !strings.Contains(out, tc.want[1]) {
				t.Errorf("who: got %s, want %q", out, tc.want)
			}
		})
	}
}

func TestForeignProcessesForPrograms(t *testing.T) {
	devices := `{"device": "gpu-3b-00", "processes": 12, "pids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "memoryUsedBytes": 2147483648}, {"device": "gpu-18-00", "processes": 0}`
	client := drivenWorld(t, shared(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(foreign(devices))) })
	out, _ := run(t, client, "--used", "-o", "jsonpath={range .items[*]}{.name} {.foreign.processes} {.foreign.pids} {.foreign.memoryUsed}{'\\n'}{end}")
	if want := "gpu-18-00 0  \ngpu-3b-00 12 [1,2,3,4,5,6,7,8] 2Gi\ngpu-86-00   \ngpu-af-00   \n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestUsedWithoutAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"an agent that fails": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }, "node a: agent agent-1: not ready"},
		"no right":            {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, "node a: permission denied: you have no right to get pods/proxy"},
		"another answer":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "node a: agent agent-1: corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			out, problems := run(t, drivenWorld(t, shared(t), tc.handler), "--used")
			if !strings.Contains(problems, tc.want) || !strings.Contains(out, "gpu-3b-00") {
				t.Errorf("got %s%s, want %q", out, problems, tc.want)
			}
		})
	}
	// A cluster without the driver's pods.
	if out, problems := run(t, server(shared(t)), "--used"); problems != "" || !strings.Contains(out, "gpu-3b-00") {
		t.Errorf("without agents: got %s%s", out, problems)
	}
}
