// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var shown = []gpu.MPSStatus{
	{
		Daemon: gpu.MPSDaemon{Name: "gpu-1a-00", Devices: []string{"GPU-a"}, ThreadPercentage: 25, MemoryLimits: []uint64{20 << 30}},
		State:  gpu.MPSReady, PID: 100, Servers: []gpu.MPSServer{{PID: 101, State: "ACTIVE", Clients: 3}},
	},
	{
		Daemon: gpu.MPSDaemon{Name: "gpu-1b-00", Devices: []string{"GPU-b", "GPU-c"}, MemoryLimits: []uint64{0, 1 << 30}},
		State:  gpu.MPSFailed, Restarts: 2, Problem: "it hangs",
		Interrupted: time.Date(2026, 11, 28, 13, 55, 8, 0, time.UTC), Waiting: []gpu.MPSWaiting{{PID: 300, UID: 1000}},
	},
	{
		Daemon: gpu.MPSDaemon{Name: "gpu-1c-00", Devices: []string{"GPU-d"}, Namespaces: []gpu.MPSNamespace{
			{Name: "one", ThreadPercentage: 25, MemoryLimit: 20 << 30}, {Name: "two", ThreadPercentage: 100},
		}},
		State: gpu.MPSReady, PID: 200, Servers: []gpu.MPSServer{{PID: 201, State: "Ready", Clients: 1}},
	},
}

func TestDaemonsAsTextAndJSON(t *testing.T) {
	var text, list bytes.Buffer
	require.NoError(t, errors.Join(WriteText(&text, shown), WriteJSON(&list, shown)))
	files.Golden(t, "status.txt", text.Bytes())
	files.Golden(t, "status.json", list.Bytes())
}
