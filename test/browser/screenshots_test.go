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
		colors        string
	}{
		{"ui-fleet.png", "/", 1280, 640, "light"},
		{"ui-waiting.png", "/pods", 1280, 420, "light"},
		{"ui-findings.png", "/findings", 1280, 640, "dark"},
		{"ui-phone.png", "/", 390, 844, "light"},
	} {
		b.size(s.width, s.height)
		b.colors(s.colors)
		b.goTo(s.path)
		b.until(`document.getElementById("state").textContent.startsWith("Live")`)
		// The agents have reported, and the findings are counted.
		b.until(`document.querySelector('#menu a[href="/findings"] .number') !== null`)
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join("..", "..", "docs", "images", s.file), picture, 0o644))
	}
}
