// SPDX-License-Identifier: Apache-2.0

package home

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgramsAreComparedToTheirEnd(t *testing.T) {
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 128 << 10} {
		program := strings.Repeat("x", size)
		for other, want := range map[string]bool{program: true, program + "x": false, program[:max(0, size-1)] + "y": false} {
			if got, err := same(strings.NewReader(program), bytes.NewBufferString(other)); got != want || err != nil {
				t.Errorf("%d bytes and %d: same is %v, %v, want %v", size, len(other), got, err, want)
			}
		}
	}
}
