// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"os"
	"testing"
)

// concurrentTests is more than the processors of a usual machine: the tests wait,
// above all for NVML's events and for the API server's client, and compute little.
const concurrentTests = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", concurrentTests); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
