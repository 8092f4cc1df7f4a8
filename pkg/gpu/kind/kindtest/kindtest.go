// SPDX-License-Identifier: Apache-2.0

// Package kindtest has names of devices for tests.
package kindtest

import "github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"

// Name returns the device of a published name. It panics if there is none.
func Name(published string) kind.Name {
	name, err := kind.Parse(published)
	if err != nil {
		panic(err)
	}
	return name
}
