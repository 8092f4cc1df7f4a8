// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestNamesPrintAndParse(t *testing.T) {
	bus1a := gpu.PCIAddress{Bus: 0x1a}
	for name, tc := range map[string]struct {
		device kind.Name
		want   string
	}{
		"a GPU":                            {kind.Name{Kind: kind.GPU, Address: bus1a}, "gpu-1a-00"},
		"a GPU in another PCI domain":      {kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Domain: 1, Bus: 0x1a}}, "gpu-0001-1a-00-0"},
		"a GPU that is not function 0":     {kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Bus: 0x1a, Function: 1}}, "gpu-0000-1a-00-1"},
		"a GPU behind VMD":                 {kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Domain: 0x10000, Bus: 1}}, "gpu-10000-01-00-0"},
		"a GPU of a virtual machine":       {kind.Name{Kind: kind.GPU, Address: gpu.PCIAddress{Device: 5}}, "gpu-00-05"},
		"time slices":                      {kind.Name{Kind: kind.TimeSlice, Address: bus1a}, "gpu-1a-00-ts"},
		"seats":                            {kind.Name{Kind: kind.Seat, Address: bus1a}, "gpu-1a-00-seat"},
		"a MIG placement":                  {kind.Name{Kind: kind.MIG, Address: bus1a, Profile: gpu.Profile{Slices: 1, MemoryGB: 10}}, "gpu-1a-00-mig-1g-10gb-0"},
		"a MIG placement with engines":     {kind.Name{Kind: kind.MIG, Address: bus1a, Profile: gpu.Profile{Slices: 1, MemoryGB: 10, Media: "+me"}, Start: 3}, "gpu-1a-00-mig-1g-10gb-me-3"},
		"a MIG placement with all engines": {kind.Name{Kind: kind.MIG, Address: bus1a, Profile: gpu.Profile{Slices: 2, MemoryGB: 48, Media: "+me.all"}}, "gpu-1a-00-mig-2g-48gb-meall-0"},
		"a MIG placement without engines":  {kind.Name{Kind: kind.MIG, Address: bus1a, Profile: gpu.Profile{Slices: 1, MemoryGB: 24, Media: "-me"}}, "gpu-1a-00-mig-1g-24gb-nome-0"},
		"all GPUs for monitoring":          {kind.Name{Kind: kind.Monitor}, "node-gpus"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Same(t, "name", tc.want, tc.device.String())
			parsed, err := kind.Parse(tc.want)
			must(t, err)
			require.Same(t, "parsed", tc.device, parsed)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                              "",
		"another driver's name":                "gpu-0",
		"capitals":                             "gpu-1A-00",
		"a PCI device beyond 1f":               "gpu-1a-20",
		"the long form of a short name":        "gpu-0000-1a-00-0",
		"a domain with needless zeros":         "gpu-00000001-1a-00-0",
		"a function beyond 7":                  "gpu-0001-1a-00-8",
		"a MIG placement without a start":      "gpu-1a-00-mig-1g-10gb",
		"a start with a leading zero":          "gpu-1a-00-mig-1g-10gb-01",
		"a profile with a leading zero":        "gpu-1a-00-mig-01g-10gb-0",
		"a profile with an unknown suffix":     "gpu-1a-00-mig-1g-10gb-xx-0",
		"a profile suffix spelled in NVIDIA's": "gpu-1a-00-mig-1g-10gb+me-0",
		"something behind the time slices":     "gpu-1a-00-ts-0",
		"a line break":                         "gpu-1a-00\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kind.Parse(s)
			require.Error(t, "Parse", err, gpu.ErrInvalid)
		})
	}
}

func TestNamesInJSON(t *testing.T) {
	type device struct {
		Name kind.Name `json:"name,omitzero"`
	}
	for text, want := range map[string]device{
		`{"name":"gpu-1a-00-ts"}`: {kind.Name{Kind: kind.TimeSlice, Address: gpu.PCIAddress{Bus: 0x1a}}},
		`{}`:                      {},
	} {
		var got device
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%+v is written as %s, %v; want %s", got, again, err, text)
		}
	}
	require.Error(t, "an empty name", json.Unmarshal([]byte(`{"name":""}`), &device{}), gpu.ErrInvalid)
}

func TestTheMPSDaemonOfADevice(t *testing.T) {
	for device, want := range map[string]string{
		"gpu-1a-00": "gpu-1a-00", "gpu-1a-00-mig-1g-10gb-0": "gpu-1a-00-mig-1g-10gb-0", "gpu-1a-00-seat": "gpu-1a-00",
		"gpu-1a-00-ts": "", "node-gpus": "",
	} {
		name, err := kind.Parse(device)
		if got := name.MPSDaemon().String(); err != nil || got != want {
			t.Errorf("%s has the daemon %q, %v; want %q", device, got, err, want)
		}
	}
}

func drawAddress(t *rapid.T) gpu.PCIAddress {
	return gpu.PCIAddress{
		Domain:   rapid.SampledFrom([]uint32{0, 1, 0xffff, 0x10000, 0xffffffff}).Draw(t, "domain"),
		Bus:      rapid.Uint8().Draw(t, "bus"),
		Device:   rapid.Uint8Max(31).Draw(t, "device"),
		Function: rapid.Uint8Max(7).Draw(t, "function"),
	}
}

func drawProfile(t *rapid.T) gpu.Profile {
	return gpu.Profile{
		Slices:   rapid.IntRange(1, 99).Draw(t, "slices"),
		MemoryGB: rapid.IntRange(1, 9999).Draw(t, "memory"),
		Media:    rapid.SampledFrom([]string{"", "+me", "+me.all", "+gfx", "-me"}).Draw(t, "media"),
	}
}

func TestEveryDeviceNameIsALabelAndParsesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := kind.Name{Kind: rapid.SampledFrom(kind.All()).Draw(t, "kind")}
		if n.OnGPU() {
			n.Address = drawAddress(t)
		}
		if n.IsPartition() {
			n.Profile = drawProfile(t)
			n.Start = rapid.IntRange(0, 99).Draw(t, "start")
		}
		s := n.String()
		if problems := validation.IsDNS1123Label(s); len(problems) > 0 {
			t.Fatalf("%q is not a DNS label: %v", s, problems)
		}
		parsed, err := kind.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(n, parsed); diff != "" {
			t.Fatalf("parsed (-want +got):\n%s", diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"gpu-1a-00", "gpu-0001-1a-00-0", "gpu-10000-01-00-0", "gpu-1a-00-ts", "gpu-1a-00-seat", "gpu-1a-00-mig-1g-10gb-0",
		"gpu-1a-00-mig-1g-10gb-me-3", "gpu-1a-00-mig-2g-48gb-meall-0", "node-gpus", "gpu-0000-1a-00-0", "gpu-1A-00", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := kind.Parse(s)
		if err != nil {
			require.Error(t, "Parse", err, gpu.ErrInvalid)
			return
		}
		if n.String() != s {
			t.Errorf("%q parses and prints as %q", s, n)
		}
		if problems := validation.IsDNS1123Label(s); len(problems) > 0 {
			t.Errorf("%q parses and is not a DNS label: %v", s, problems)
		}
	})
}
