// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update-screenshots", false, "take the screenshots of the documents anew")

func TestScreenshots(t *testing.T) {
	if !*update {
		t.Skip("the pictures depend on the fonts of the machine: -update-screenshots takes them")
	}
	b := open(t, serve(t, busy(t)))
	for _, s := range []struct {
		file, path    string
		width, height int64
	}{
		{"ui-fleet.png", "/", 1200, 640},
		{"ui-node.png", "/nodes/dgx-01", 1000, 1180},
		{"ui-why.png", "/pods/team-a/notebook-3", 1000, 640},
		{"ui-phone.png", "/", 360, 740},
	} {
		b.size(s.width, s.height)
		b.goTo(s.path)
		b.shows("Live")
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join("..", "..", "docs", "images", s.file), picture, 0o644))
	}
}
