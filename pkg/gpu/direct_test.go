// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
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
		require.Same(t, text, want, got)
	}
	for _, text := range []string{"nvswitch", "gds,", "GDS", "gds, mofed"} {
		if _, err := gpu.ParseDirects(text); !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "gds, gdrcopy, mofed") {
			t.Errorf("%q: error %v, want %v and the list of valid names", text, err, gpu.ErrInvalid)
		}
	}
}
