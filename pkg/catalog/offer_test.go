// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestParseOffer(t *testing.T) {
	got, err := catalog.ParseOffer("share")
	must(t, err)
	require.Same(t, "offer", catalog.Offer("share"), got)
	if got.String() != "share" {
		t.Errorf("share is written as %q", got)
	}
	both, err := catalog.ParseOffer("mig,share")
	if diff := cmp.Diff(catalog.Offer("share,mig"), both); err != nil || diff != "" {
		t.Errorf("mig,share: %v (-want +got):\n%s", err, diff)
	}
	if both.String() != "share,mig" {
		t.Errorf("mig,share is written as %q", both)
	}
	sliced, err := catalog.ParseOffer("timeslice")
	if diff := cmp.Diff(catalog.Offer("timeslice"), sliced); err != nil || diff != "" {
		t.Errorf("timeslice: %v (-want +got):\n%s", err, diff)
	}
	watched, err := catalog.ParseOffer("monitor,share")
	if diff := cmp.Diff(catalog.Offer("share,monitor"), watched); err != nil || diff != "" {
		t.Errorf("monitor,share: %v (-want +got):\n%s", err, diff)
	}
	for name, s := range map[string]string{
		"nothing":             "",
		"an unknown word":     "shares",
		"a word twice":        "share,share",
		"a trailing comma":    "share,",
		"capitals":            "Share",
		"a known one and not": "share,teleport",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			_, err := catalog.ParseOffer(s)
			if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "known are: share, mig, timeslice, seat, monitor") {
				t.Errorf("ParseOffer(%q): %v; want an error that is ErrInvalid and lists the known words", s, err)
			}
		})
	}
}

func TestParseOfferLabel(t *testing.T) {
	for value, want := range map[string]string{
		"":              "",
		"share":         "share",
		"share.mig":     "share,mig",
		"mig_share":     "share,mig",
		"monitor.share": "share,monitor",

		"timeslice.mig_share": "share,mig,timeslice",
	} {
		got, err := catalog.ParseOfferLabel(value)
		if err != nil || got.String() != want {
			t.Errorf("label %q: %q, %v; want %q", value, got, err, want)
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %q: %v", value, problems)
		}
	}
	for _, value := range []string{"share..mig", "none", "mig.mig", "share-mig"} {
		if got, err := catalog.ParseOfferLabel(value); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("label %q: %q, %v; want ErrInvalid", value, got, err)
		}
	}
}

func TestParseMIGProfiles(t *testing.T) {
	for s, want := range map[string]catalog.MIGProfiles{
		"common":             {},
		"all":                {All: true},
		"1g.10gb":            {Listed: []gpu.Profile{{Slices: 1, MemoryGB: 10}}},
		"2g.20gb,1g.10gb+me": {Listed: []gpu.Profile{{Slices: 2, MemoryGB: 20}, {Slices: 1, MemoryGB: 10, Media: "+me"}}},
	} {
		got, err := catalog.ParseMIGProfiles(s)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", s, err, diff)
		}
	}
	for _, s := range []string{"", "1g", "1g.10gb,", "1g.10gb,1g.10gb", "common,all"} {
		if got, err := catalog.ParseMIGProfiles(s); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("%q: %v, %v; want ErrInvalid", s, got, err)
		}
	}
}
