// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
)

// keepsSpecs is a CDI directory from which no spec can be removed.
type keepsSpecs struct{ ports.CDI }

func (keepsSpecs) Remove(context.Context, types.UID) error {
	return errors.New("read-only file system")
}

// A spec without a record holds the devices that it names. So the record of another
// boot is removed last: with it, the claim holds nothing.
func TestAClaimOfAnotherBootHoldsNothingWhileItCannotBeForgotten(t *testing.T) {
	w := newWorld(t, t.TempDir(), 1)
	if _, err := w.start().Prepare(once(), newClaim("before", "gpu-00-00")); err != nil {
		t.Fatal(err)
	}
	w.boot++
	m := w.start(func(c ports.CDI) ports.CDI { return keepsSpecs{c} })
	if _, err := m.Recover(t.Context()); err == nil {
		t.Error("recovered, want the error of the CDI folder")
	}
	if _, err := m.Prepare(once(), newClaim("after", "gpu-00-00")); err != nil {
		t.Errorf("the GPU of a claim of another boot: %v, want it free", err)
	}
}
