package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestParseOffer(t *testing.T) {
	got, err := catalog.ParseOffer("share")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(catalog.Offer{Share: true}, got); diff != "" {
		t.Errorf("offer (-want +got):\n%s", diff)
	}
	if got.String() != "share" {
		t.Errorf("share is written as %q", got)
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
			if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "known are: share") {
				t.Errorf("ParseOffer(%q): %v; want an error that is ErrInvalid and lists what is known", s, err)
			}
		})
	}
}
