// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkNames returns an error for the first name that is not among all. It suggests the
// nearest one.
func checkNames(kind string, names, all []string, otherwise string) error {
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		if near := fleet.Nearest(name, all); len(near) > 0 {
			return fmt.Errorf("%s %s: %w: did you mean %s?", kind, name, gpu.ErrNotFound, near[0])
		}
		return fmt.Errorf("%s %s: %w: %s", kind, name, gpu.ErrNotFound, otherwise)
	}
	return nil
}
