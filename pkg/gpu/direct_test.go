// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
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
		_, err := gpu.ParseDirects(text)
		require.Error(t, text, err, gpu.ErrInvalid, "gds, gdrcopy, mofed")
	}
}
