// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAContainerIsAdaptedToItsMachine(t *testing.T) {
	const config = `{
		"linux": {"resources": {"hugepageLimits": [{"limit": 0}], "memory": {"limit": 9223372036854771712}}},
		"process": {"args": ["a"], "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"]}, "oomScoreAdj": -998}
	}`
	full := machine{capabilities: 1<<len(strings.Fields(names)) - 1, oomScoreAdj: -1000, hugetlb: true}
	small := machine{capabilities: 1}
	for name, tc := range map[string]struct {
		machine machine
		want    string
	}{
		"a machine with all rights": {full, `{"linux":{"resources":{"hugepageLimits":[{"limit":0}],"memory":{"limit":9223372036854771712}}},"process":{"args":["a"],"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"]},"oomScoreAdj":-998}}`},
		"a machine with few":        {small, `{"linux":{"resources":{"memory":{"limit":9223372036854771712}}},"process":{"args":["a"],"capabilities":{"bounding":["CAP_CHOWN"]},"oomScoreAdj":0}}`},
	} {
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := adapt(file, func(_ machine, c map[string]any) { tc.machine.adaptContainer(c) }); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, tc.want)
		}
	}
}
