// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestADaemonThatSaysAnotherCeilingIsNotTrusted(t *testing.T) {
	memory := setting{device: 0, value: 19968 * mebibyte}
	threads := setting{device: -1, value: 25}
	for name, tc := range map[string]struct {
		setting setting
		said    string
		refused bool
	}{
		"the same in M":                         {memory, "19968M", false},
		"the same in whole G, rounded down":     {memory, "19G", false},
		"the same in bytes":                     {memory, "20937965568", false},
		"more":                                  {memory, "20G", true},
		"less":                                  {memory, "18G", true},
		"no limit":                              {memory, "0", true},
		"words without a known meaning":         {memory, "none set", false},
		"the percentage as a decimal":           {threads, "25.0", false},
		"another percentage":                    {threads, "100.0", true},
		"no percentage, though one always says": {threads, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.setting.check(tc.said)
			if (err != nil) != tc.refused || err != nil && !errors.Is(err, gpu.ErrNotSupported) {
				t.Errorf("%q: got %v, want refused: %t", tc.said, err, tc.refused)
			}
		})
	}
}
