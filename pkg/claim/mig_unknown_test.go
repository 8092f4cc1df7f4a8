// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// After a driver update a claim can hold a MIG device with a profile that the GPU no
// longer has. Its placement is unknown then.
func TestAMIGDeviceWithAnUnknownPlacementExcludesOthersOnItsGPU(t *testing.T) {
	w := newMIGWorld(t, t.TempDir(), "dgx-h100")
	m := w.start()
	if _, err := m.Prepare(once(), newClaim("other", h100+"-mig-3g-40gb-0")); err != nil {
		t.Fatal(err)
	}
	name, err := kind.Parse(h100)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	g := w.gpus[name.Address]
	g.MIG.Profiles = slices.DeleteFunc(slices.Clone(g.MIG.Profiles), func(p gpu.ProfileInfo) bool { return p.Profile.String() == "3g.40gb" })
	w.gpus[name.Address] = g
	w.mu.Unlock()
	for _, device := range []string{"-mig-1g-10gb-3", "-mig-1g-10gb-6"} {
		_, err = m.Prepare(once(), newClaim("refused", h100+device))
		if !errors.Is(err, gpu.ErrInUse) || !strings.Contains(err.Error(), "claim holds gpu-1b-00-mig-3g-40gb-0") {
			t.Errorf("%s: error %v, want it to name the device that another claim holds", device, err)
		}
	}
}
