// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"testing"
)

// faultVariable makes the test binary the driver under test.
const faultVariable = "DRA_SANITY_TEST_FAULT"

func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(faultVariable); ok {
		if err := runTestDriver(context.Background(), fault); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// sanity runs scenarios on a driver with a fault, and returns the results by their ids.
func sanity(t *testing.T, fault, scenarios string) map[string]result {
	t.Helper()
	var out bytes.Buffer
	command := fmt.Sprintf("exec env %s='%s' %s", faultVariable, fault, os.Args[0])
	failed, err := run(t.Context(), []string{"--driver-name", testDriverName, "--exec", command, "--claims", "30", "--run", scenarios, "--output", "json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Results []result }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	results, failures := map[string]result{}, 0
	for _, r := range report.Results {
		results[r.ID] = r
		if r.Verdict == failure {
			failures++
		}
	}
	if failed != (failures > 0) {
		t.Errorf("failed is %t with %d failures", failed, failures)
	}
	return results
}

func TestADriverWithoutFaultsPasses(t *testing.T) {
	t.Parallel()
	results := sanity(t, "", ".")
	if len(results) != len(scenarios) {
		t.Errorf("got %d results of %d scenarios", len(results), len(scenarios))
	}
	for _, r := range results {
		if r.Verdict != success && r.ID != "health" {
			t.Errorf("%s: %s: %s", r.ID, r.Verdict, r.Message)
		}
	}
	if r := results["health"]; r.Verdict != skip {
		t.Errorf("the stream that the driver lacks is %s", r.Verdict)
	}
}

func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	for fault, scenario := range map[string]string{
		"has a long name":                    "slices-valid",
		"publishes a clock":                  "slices-stable",
		"withdraws its devices at its start": "slices-after-kill",
		"prepares devices of others":         "prepare-other-driver",
		"forgets prepared claims":            "kill-prepared",
		"ignores parameters":                 "prepare-bad-config",
		"prepares a held device":             "prepare-held",
		"writes a spec once":                 "cdi-emptied",
		"leaves specs":                       "unprepare",
		"unprepares only what it knows":      "unprepare-unknown",
		"ignores SIGTERM":                    "terminate",
		"leaks files":                        "many",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			if r := sanity(t, fault, "^"+scenario+"$")[scenario]; r.Verdict != failure {
				t.Errorf("%s is %s: %s", scenario, r.Verdict, r.Message)
			}
		})
	}
}

func TestTooFewDevicesAreNoVerdict(t *testing.T) {
	t.Parallel()
	if r := sanity(t, "has one device", "^prepare-two-devices$")["prepare-two-devices"]; r.Verdict != skip {
		t.Errorf("got %s: %s", r.Verdict, r.Message)
	}
}

func TestReports(t *testing.T) {
	results := []result{
		{ID: "a", Want: "works", Source: "s", Verdict: success, Seconds: 1},
		{ID: "b", Want: "fails", Source: "s", Verdict: failure, Message: "it <did> not"},
		{ID: "c", Want: "not there", Source: "s", Verdict: skip, Message: "skipped: why"},
	}
	var text, junit bytes.Buffer
	if err := writeText(&text, "d", results); err != nil {
		t.Fatal(err)
	}
	if want := "d: 1 ok, 1 failed, 1 skipped\n"; !strings.HasSuffix(text.String(), want) || !strings.Contains(text.String(), "wanted by: s") {
		t.Errorf("got %s", text.String())
	}
	if err := writeJUnit(&junit, "d", results); err != nil {
		t.Fatal(err)
	}
	var suite testSuite
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || suite.Cases[1].Failure.Message != "it <did> not" || suite.Cases[0].Failure != nil {
		t.Errorf("got %+v", suite)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--driver-name", "d"},
		{"--driver-name", "d", "--exec", "true", "--kubeconfig", "f"},
		{"--driver-name", "d", "--exec", "true", "--run", "("},
		{"--driver-name", "d", "--exec", "true", "--output", "yaml"},
		{"--driver-name", "d", "--exec", "true", "more"},
		{"--nonsense"},
	} {
		if _, err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
