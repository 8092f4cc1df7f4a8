// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The value of a label has no commas.
func TestParseOffer(t *testing.T) {
	for _, c := range []struct{ list, label, want string }{
		{"", "", ""}, // of a label only: an empty list is refused
		{"share", "share", "share"},
		{"timeslice", "timeslice", "timeslice"},
		{"share,mig", "share.mig", "share,mig"},
		{"mig,share", "mig_share", "share,mig"},
		{"monitor,share", "monitor.share", "share,monitor"},
		{"timeslice,mig,share", "timeslice.mig_share", "share,mig,timeslice"},
	} {
		if got, err := catalog.ParseOffer(c.list); c.list != "" && (err != nil || got != catalog.Offer(c.want) || got.String() != c.want) {
			t.Errorf("%s: %q, %v; want %q", c.list, got, err, c.want)
		}
		if got, err := catalog.ParseOfferLabel(c.label); err != nil || got.String() != c.want {
			t.Errorf("label %q: %q, %v; want %q", c.label, got, err, c.want)
		}
		if problems := validation.IsValidLabelValue(c.label); len(problems) > 0 {
			t.Errorf("label %q: %v", c.label, problems)
		}
	}
	for name, list := range map[string]string{
		"nothing":             "",
		"an unknown word":     "shares",
		"a word twice":        "share,share",
		"a trailing comma":    "share,",
		"capitals":            "Share",
		"a known one and not": "share,teleport",
	} {
		_, err := catalog.ParseOffer(list)
		require.Error(t, name, err, gpu.ErrInvalid, "known are: share, mig, timeslice, seat, monitor")
	}
	for _, label := range []string{"share..mig", "none", "mig.mig", "share-mig"} {
		_, err := catalog.ParseOfferLabel(label)
		require.Error(t, "label "+label, err, gpu.ErrInvalid)
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
		_, err := catalog.ParseMIGProfiles(s)
		require.Error(t, "profiles "+s, err, gpu.ErrInvalid)
	}
}
