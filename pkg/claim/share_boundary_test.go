// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Each boundary has a case that is admitted and a case that exceeds it.
func TestTheBoundariesOfSharing(t *testing.T) {
	processes := func(n int) string { return config("ShareConfig", fmt.Sprintf(`"processes":%d`, n)) }
	// The smallest share may have less memory than a 48th of the GPU.
	small := func(n int) (all []*resourceapi.ResourceClaim) {
		for i := range n {
			all = append(all, pieces(fmt.Sprint("small-", i), piece{device: "gpu-00-00", memory: "1Gi"}))
		}
		return all
	}
	perDevice := func(device int, limit string) string {
		return config("GpuConfig", fmt.Sprintf(`"sharing":{"strategy":"MPS","mps":{"perDevice":[{"device":%d,"memoryLimit":"%s"}]}}`, device, limit))
	}
	for name, c := range map[string]struct {
		others []*resourceapi.ResourceClaim
		pieces []piece
		is     error // nil if the claim is admitted
		says   string
	}{
		"as many processes as MPS admits, in all of the memory": {
			pieces: []piece{{device: "gpu-00-00", memory: "80Gi", config: processes(48)}},
		},
		"as many processes as a share has of them": {
			pieces: []piece{{device: "gpu-00-00", memory: "30Gi", config: processes(18)}},
		},
		"one process more than a share has of them": {
			pieces: []piece{{device: "gpu-00-00", memory: "30Gi", config: processes(19)}},
			is:     gpu.ErrInvalid, says: "a share of 30Gi has 18 of the 48 processes that MPS admits at a time to the device with 80Gi, and the ShareConfig declares 19; declare 18 in the ShareConfig, or ask for 32427Mi of memory",
		},
		"the memory that is said to be enough": {
			pieces: []piece{{device: "gpu-00-00", memory: "32427Mi", config: processes(19)}},
		},
		"a Mi less than that": {
			pieces: []piece{{device: "gpu-00-00", memory: "32426Mi", config: processes(19)}},
			is:     gpu.ErrInvalid, says: "ask for 32427Mi",
		},
		"the processes of shares that fill a GPU": {
			others: []*resourceapi.ResourceClaim{
				pieces("a", piece{device: "gpu-00-00", memory: "50Gi", config: processes(30)}),
				pieces("b", piece{device: "gpu-00-00", memory: "20Gi", config: processes(12)}),
			},
			pieces: []piece{{device: "gpu-00-00", memory: "10Gi", config: processes(6)}},
		},
		"as many shares as MPS admits processes": {
			others: small(47), pieces: []piece{{device: "gpu-00-00", memory: "1Gi"}},
		},
		"one share more": {
			others: small(48),
			pieces: []piece{{device: "gpu-00-00", memory: "1Gi"}},
			is:     gpu.ErrNoCapacity, says: "MPS admits 48 processes",
		},
		"a limit for the last device of a request": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "10Gi")}},
		},
		"a limit for the device after the last": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(1, "10Gi")}},
			is:     gpu.ErrInvalid, says: "sharing.mps.perDevice[0].device",
		},
		"a limit for a device of another request": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(1, "10Gi")}, {device: "gpu-01-00"}},
			is:     gpu.ErrInvalid, says: "sharing.mps.perDevice[0].device",
		},
		"a limit of all that a device has": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "80Gi")}},
		},
		"a limit of more than a device has": {
			pieces: []piece{{device: "gpu-00-00", config: perDevice(0, "81921Mi")}},
			is:     gpu.ErrInvalid, says: "81921Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			m := w.start()
			for _, other := range c.others {
				if _, err := m.Prepare(once(), other); err != nil {
					t.Fatal(err)
				}
			}
			_, err := m.Prepare(once(), pieces("c", c.pieces...))
			if !errors.Is(err, c.is) || c.is != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v that says %q", err, c.is, c.says)
			}
		})
	}
}

func TestTheLastOfAClaimsConfigurationsWins(t *testing.T) {
	mps := config("ShareConfig", "")
	for name, c := range map[string]struct {
		configs []string // of the claim, in their order
		want    v1alpha1.Strategy
	}{
		"MPS after Plain": {[]string{config("ShareConfig", plain), mps}, v1alpha1.StrategyMPS},
		"Plain after MPS": {[]string{mps, config("ShareConfig", plain)}, v1alpha1.StrategyPlain},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 1)
			share := pieces("c", piece{device: "gpu-00-00", memory: "20Gi"})
			for _, parameters := range c.configs {
				devices := &share.Status.Allocation.Devices
				devices.Config = append(devices.Config, opaque(resourceapi.AllocationConfigSourceClaim, driver, parameters))
			}
			devices, err := w.start().Prepare(once(), share)
			if err != nil {
				t.Fatal(err)
			}
			if got := devices[0].Strategy(); got != c.want {
				t.Errorf("the share is held by %s, want %s", got, c.want)
			}
		})
	}
}
