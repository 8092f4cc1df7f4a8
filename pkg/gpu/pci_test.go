// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestParsePCIAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		in, printed string
		want        gpu.PCIAddress
	}{
		"as the kernel prints it": {"0000:1b:00.0", "0000:1b:00.0", gpu.PCIAddress{Bus: 0x1b}},
		"as NVML prints it":       {"00000000:1B:00.0", "0000:1b:00.0", gpu.PCIAddress{Bus: 0x1b}},
		"a domain of five digits": {"10000:01:1f.7", "10000:01:1f.7", gpu.PCIAddress{Domain: 0x10000, Bus: 1, Device: 31, Function: 7}},
		"Grace Hopper":            {"00000009:01:00.0", "0009:01:00.0", gpu.PCIAddress{Domain: 9, Bus: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gpu.ParsePCIAddress(tc.in)
			require.NoError(t, err)
			require.Same(t, "address", tc.want, got)
			require.Same(t, "printed", tc.printed, got.String())
		})
	}
	for name, in := range map[string]string{
		"nothing":             "",
		"without the domain":  "1b:00.0",
		"a device beyond 1f":  "0000:1b:20.0",
		"a function beyond 7": "0000:1b:00.8",
		"a line break":        "0000:1b:00.0\n",
		"nine domain digits":  "000000000:1b:00.0",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			_, err := gpu.ParsePCIAddress(in)
			require.Error(t, "ParsePCIAddress", err, gpu.ErrInvalid)
		})
	}
}

func TestPCIAddressesParseBackAndOrderLikeTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawAddress(t), drawAddress(t)
		parsed, err := gpu.ParsePCIAddress(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if parsed != a {
			t.Fatalf("%v parses as %v", a, parsed)
		}
		if (a.Compare(b) == 0) != (a == b) || a.Compare(b) != -b.Compare(a) {
			t.Fatalf("compare(%v, %v) = %d, the other way round %d", a, b, a.Compare(b), b.Compare(a))
		}
	})
}

func FuzzParsePCIAddress(f *testing.F) {
	for _, seed := range []string{"0000:1b:00.0", "00000000:1B:00.0", "10000:01:1f.7", "", "1b:00.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := gpu.ParsePCIAddress(s)
		if err != nil {
			return
		}
		again, err := gpu.ParsePCIAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q parses as %v, which parses as %v, %v", s, a, again, err)
		}
	})
}

func drawAddress(t *rapid.T) gpu.PCIAddress {
	return gpu.PCIAddress{
		Domain:   rapid.SampledFrom([]uint32{0, 1, 0xffff, 0x10000, 0xffffffff}).Draw(t, "domain"),
		Bus:      rapid.Uint8().Draw(t, "bus"),
		Device:   rapid.Uint8Max(31).Draw(t, "device"),
		Function: rapid.Uint8Max(7).Draw(t, "function"),
	}
}
