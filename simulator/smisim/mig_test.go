// SPDX-License-Identifier: Apache-2.0

package smisim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/smisim"
)

// session runs commands of an administrator on a node, and returns their output.
func session(t *testing.T, s *nvmlsim.Sim, commands ...string) string {
	t.Helper()
	program, err := smisim.OnNode(s)
	must(t, err)
	var all strings.Builder
	for _, command := range commands {
		out, status := run(program, strings.Fields(command)...)
		all.WriteString("$ " + command + "\n" + out)
		if status != 0 {
			fmt.Fprintf(&all, "status %d\n", status)
		}
	}
	return all.String()
}

func TestAnAdministratorMakesMIGDevices(t *testing.T) {
	h100, a100 := newNode(t, "dgx-h100"), newNode(t, "dgx-a100")
	must(t, a100.AddProcess(1, nvmlsim.Process{PID: os.Getpid(), Name: "dcgm"}))
	for name, got := range map[string]string{
		"h100.txt": session(t, h100, "mig -lgi -i 0", "-i 0 -mig 1", "mig -i 0 -lgi", "mig -i 0 -cgi 9,1g.10gb:4 -C", "mig -cgi 3g.40gb -i 0", "mig -cgi 19 -i 0", "mig -cgi 3g -i 0",
			"mig -lgi", "mig -lci -i 0", "mig -cci 0 -gi 2 -i 0", "mig -cci -gi 1 -i 0", "mig -dgi -gi 1 -i 0", "mig -dgi -gi 5", "-i 0 --multi-instance-gpu 0", "mig -dci -i 0", "mig -cci 0,0 -gi 1 -i 0",
			"mig -lci", "mig -dci -gi 1 -ci 1", "mig -dci", "mig -dgi", "-i 0 -mig 0", "mig -lgi -lci", "mig", "-lgi", "-mig 2"),
		"a100.txt": session(t, a100, "-i 0,1 -mig 1", "mig -cgi 9", "--gpu-reset -i 0", "mig -cgi 9 -C", "-i 0 -mig 0"),
		"t4.txt":   session(t, newNode(t, "t4"), "-i 0 -mig 1", "mig -lgi"),
	} {
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			must(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		must(t, err)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	}
}

func TestAMIGDeviceInUseIsNotDestroyed(t *testing.T) {
	s := newNode(t, "dgx-h100")
	session(t, s, "-i 0 -mig 1", "mig -cgi 9 -C -i 0")
	must(t, s.AddProcess(0, nvmlsim.Process{PID: os.Getpid(), Device: tables(t, s).GPUs[0].MIGDevices[0].UUID}))
	const want = "$ mig -dci\nUnable to destroy compute instance ID  0 from GPU  0 GPU instance ID  1: In use by another client\n" +
		"Failed to destroy compute instances: In use by another client\nstatus 19\n"
	if diff := cmp.Diff(want, session(t, s, "mig -dci")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
