// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"errors"
	"strings"
	"testing"
)

func TestAnErrorIsALineThatIsSafeToPrint(t *testing.T) {
	long := strings.Repeat("ö", 2000)
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no error":           {nil, ""},
		"two errors":         {errors.Join(errors.New("a file is gone"), errors.New("größer")), "a file is gone; größer"},
		"control characters": {errors.New("\x1b[2J\u202e\tx\xff"), "\ufffd[2J\ufffd\ufffdx\ufffd"},
		"a long text":        {errors.New(long), long[:1020] + "…"},
		"the longest text":   {errors.New(long[:1024]), long[:1024]},
	} {
		if got := Line(tc.err); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
