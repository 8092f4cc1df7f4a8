// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestAListOfGPUDirectInterfaces(t *testing.T) {
	for text, want := range map[string][]gpu.Direct{
		"":                  nil,
		"gdrcopy":           {gpu.DirectCopy},
		"gds,mofed,gdrcopy": {gpu.DirectStorage, gpu.DirectRDMA, gpu.DirectCopy},
		"gds,gds":           {gpu.DirectStorage},
	} {
		got, err := gpu.ParseDirects(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"nvswitch", "gds,", "GDS", "gds, mofed"} {
		if _, err := gpu.ParseDirects(text); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "gds, gdrcopy, mofed") {
			t.Errorf("%q: error %v, want %v and the list of valid names", text, err, gpu.ErrInvalid)
		}
	}
}
