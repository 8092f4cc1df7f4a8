// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestParseProfile(t *testing.T) {
	for in, want := range map[string]gpu.Profile{
		"1g.10gb":        {Slices: 1, MemoryGB: 10},
		"7g.80gb":        {Slices: 7, MemoryGB: 80},
		"1g.10gb+me":     {Slices: 1, MemoryGB: 10, Media: "+me"},
		"2g.48gb+me.all": {Slices: 2, MemoryGB: 48, Media: "+me.all"},
		"4g.96gb+gfx":    {Slices: 4, MemoryGB: 96, Media: "+gfx"},
		"1g.24gb-me":     {Slices: 1, MemoryGB: 24, Media: "-me"},
	} {
		t.Run(in, func(t *testing.T) {
			got, err := gpu.ParseProfile(in)
			require.NoError(t, err)
			require.Same(t, "profile", want, got)
		})
	}
	for name, in := range map[string]string{
		"nothing":             "",
		"a compute instance":  "1c.3g.40gb",
		"the device spelling": "1g-10gb",
		"no slices":           "0g.10gb",
		"a leading zero":      "01g.10gb",
		"an unknown suffix":   "1g.10gb+xyz",
		"a line break":        "1g.10gb\n",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			_, err := gpu.ParseProfile(in)
			require.Error(t, "ParseProfile", err, gpu.ErrInvalid)
		})
	}
}

func TestProfilesParseBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProfile(t)
		got, err := gpu.ParseProfile(p.String())
		if err != nil {
			t.Fatal(err)
		}
		if got != p {
			t.Fatalf("%v parses as %v", p, got)
		}
	})
}

func FuzzParseProfile(f *testing.F) {
	for _, seed := range []string{"1g.10gb", "1g.10gb+me", "2g.48gb+me.all", "1g.24gb-me", "1c.3g.40gb", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := gpu.ParseProfile(s)
		if err == nil && p.String() != s {
			t.Errorf("%q parses and prints as %q", s, p)
		}
	})
}

func drawProfile(t *rapid.T) gpu.Profile {
	return gpu.Profile{
		Slices:   rapid.IntRange(1, 99).Draw(t, "slices"),
		MemoryGB: rapid.IntRange(1, 9999).Draw(t, "memory"),
		Media:    rapid.SampledFrom([]string{"", "+me", "+me.all", "+gfx", "-me"}).Draw(t, "media"),
	}
}
