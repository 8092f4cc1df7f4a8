// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

// concurrentTests is more than the processors of a usual machine: the tests wait,
// above all for NVML's events and for the API server's client, and compute little.
const concurrentTests = "4"

// lives is the number of lives in TestSimulation. The race detector makes them several times
// slower, so `make unit` also runs them without it.
func lives() string {
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return "3"
	}
	return "15"
}

func TestMain(m *testing.M) {
	// The same lives in each run, so that a change makes the test fail and not the day. The nightly
	// lives others.
	for name, value := range map[string]string{"rapid.checks": lives(), "rapid.seed": "1"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	if err := flag.Set("test.parallel", concurrentTests); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
