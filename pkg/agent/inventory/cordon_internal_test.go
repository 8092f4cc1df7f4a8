// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"slices"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestTheCordonedGPUsOfAnAnnotation(t *testing.T) {
	for value, c := range map[string]struct {
		want  []string
		wrong bool
	}{
		"":                                 {},
		"gpu-1b-00, gpu-43-00,":            {want: []string{"gpu-1b-00", "gpu-43-00"}},
		"gpu-1b-00-ts,gpu-43-00":           {want: []string{"gpu-43-00"}, wrong: true},
		"node-gpus":                        {wrong: true},
		"gpu-1b-00;gpu-43-00,gpu-5b-00":    {want: []string{"gpu-5b-00"}, wrong: true},
		"GPU-1b-00,../gpu-1b-00\n,\x1b[2J": {wrong: true},
	} {
		got, err := parseCordoned(value)
		if !slices.Equal(got, c.want) || errors.Is(err, gpu.ErrInvalid) != c.wrong || (err != nil) != c.wrong {
			t.Errorf("%q: %q, %v; want %q", value, got, err, c.want)
		}
	}
}
