// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// paths are all kinds of pages of the busy cluster, with text that each must have.
var paths = []struct {
	path string
	want []string
}{
	{"/", []string{"dgx-01", "H100 80GB HBM3", "edge-01", "xid-79, 12m"}},
	{"/?q=a100", []string{"dgx-02"}},
	{"/nodes/dgx-01", []string{"gpu-1b-00", "whole", "shared", "mig", "timeslice", "NV: one NVLink domain", "notebook-2", "LIMITED BY", "mps, memory cgroup, compute cooperative", "1/7 slices"}},
	{"/nodes/dgx-01?q=gpu-52-00", []string{"60.0Gi/79.1Gi", "notebook-0"}},
	{"/holders", []string{"research", "training", "gpu-43-00"}},
	{"/claims/research/training", []string{"claim training has gpu-1b-00 of node dgx-01", "gpu-43-00"}},
	{"/claims/research/finetuning", []string{"no device is large enough"}},
	{"/pods", []string{"finetuning", "no device is large enough", "request less"}},
	{"/pods/research/finetuning", []string{"What to do", "request less", "Node dgx-02", "cannot allocate all claims"}},
	{"/pods/team-a/notebook-3", []string{"change the selector", "\"Hopper\"", "the selector does not select it: architecture is Turing"}},
	{"/namespaces", []string{"research", "8.0"}},
	{"/holders?sort=-memory", []string{"training", "30.0Gi"}},
	{"/findings", []string{"problem", "xid-79", "gpu-d1-00 has the taint", "REMEDY"}},
	{"/nodes/none", []string{"Not found", "To the fleet"}},
}

func TestPages(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	b.ignore("/nodes/none") // it does not exist
	b.goTo("/findings")
	b.shows("Checked at")
	for _, p := range paths {
		t.Run(p.path, func(t *testing.T) {
			for i, width := range []int64{1280, 390, 1280, 390} {
				b.size(width, 740)
				b.colors([]string{"light", "dark"}[i/2])
				b.goTo(p.path)
				if dull := eval[[]string](b, contrast); len(dull) > 0 {
					t.Errorf("text is hard to read in %s: %s", []string{"light", "dark"}[i/2], dull)
				}
				for _, want := range p.want {
					if !eval[bool](b, fmt.Sprintf(`document.body.textContent.includes(%q)`, want)) {
						t.Errorf("no %q", want)
					}
				}
				// Nothing is cut or scrolled sideways: not the page, and on a phone no part of it.
				if wide := eval[[]string](b, fmt.Sprintf(`[...document.querySelectorAll("html, main *, header *")].filter((e) => {
					if (e.closest(".unseen, .skip, .gauge") || e.getClientRects().length === 0 || getComputedStyle(e).clipPath !== "none" || e.closest("thead") && innerWidth < 760) return false;
					if (%t && e.closest(".scroll")) return false;
					return e.getBoundingClientRect().right > innerWidth + 1 || e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1 && !(e instanceof SVGElement) && e.nodeName !== "INPUT" || getComputedStyle(e).textOverflow === "ellipsis";
				}).map((e) => e.outerHTML.slice(0, 160))`, width > 760)); len(wide) > 0 {
					t.Errorf("at a width of %d parts are cut or scroll sideways: %s", width, wide)
				}
				// The page has one heading, and each landmark and field a name.
				if problems := eval[[]string](b, `[
					document.querySelectorAll("h1").length === 1 ? "" : "not one h1",
					document.querySelectorAll("main").length === 1 ? "" : "not one main",
					document.title.endsWith("· kubectl gpu") ? "" : "the title is " + document.title,
					...[...document.querySelectorAll("nav, table, [role=region]")].map((e) => e.getAttribute("aria-label") ? "" : "no label: " + e.outerHTML.slice(0, 80)),
					...[...document.querySelectorAll("input:not([type=hidden])")].map((e) => e.labels.length ? "" : "no label: " + e.outerHTML),
					...[...document.querySelectorAll("a")].map((e) => e.textContent.trim() || e.getAttribute("aria-label") ? "" : "no text: " + e.outerHTML),
				].filter(Boolean)`); len(problems) > 0 {
					t.Errorf("%s", problems)
				}
			}
		})
	}
}

// contrast is the elements with text of less than 4.5 times the contrast, as WCAG wants.
const contrast = `(() => {
	const numbers = (color) => (color.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
	const luminance = (color) => {
		const [r, g, b] = numbers(color).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = (e) => {
		for (; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor;
			if (numbers(color)[3] !== 0) return color;
		}
		return "rgb(255, 255, 255)";
	};
	return [...document.querySelectorAll("main *, header *")].filter((e) => {
		if (e instanceof SVGElement || e.getClientRects().length === 0 || ![...e.childNodes].some((c) => c.nodeType === Node.TEXT_NODE && c.nodeValue.trim())) return false;
		const [a, b] = [luminance(getComputedStyle(e).color), luminance(ground(e))].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05) < 4.5;
	}).map((e) => e.outerHTML.slice(0, 160));
})()`

// Tables that are wider than a tablet scroll sideways.
func TestHealthStaysInSight(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	b.size(820, 740)
	for _, path := range []string{"/", "/nodes/dgx-01", "/claims/research/training"} {
		b.goTo(path)
		b.until(`[...document.querySelectorAll("thead th")].some((e) => e.textContent.startsWith("USED"))`)
		if right := eval[float64](b, `(() => {
			const heading = [...document.querySelectorAll("thead th")].find((e) => e.textContent.startsWith("HEALTH"));
			return Math.max(...[...heading.closest("table").rows].map((row) => row.cells[heading.cellIndex].getBoundingClientRect().right));
		})()`); right > 820 {
			t.Errorf("%s: the health ends at %v", path, right)
		}
	}
}

// A user without a mouse sorts a list, and the focus stays on the heading.
func TestSortByKeyboard(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	first := func() string {
		return eval[string](b, `document.querySelector("tbody tr").dataset.key`)
	}
	for _, width := range []int64{1280, 390} {
		b.size(width, 740)
		b.goTo("/holders")
		b.tabTo("?sort=memory")
		b.press(kb.Enter)
		b.until(`location.search === "?sort=memory" && document.querySelector("th[aria-sort=ascending]")?.textContent.startsWith("MEMORY")`)
		least := first()
		b.until(`document.activeElement.textContent === "MEMORY" && document.activeElement.matches(":focus-visible")`)
		b.press(kb.Enter)
		b.until(`location.search === "?sort=-memory" && document.querySelector("th[aria-sort=descending]")?.textContent.startsWith("MEMORY")`)
		if most := first(); !strings.HasPrefix(least, "shop/camera") || !strings.HasPrefix(most, "research/") {
			t.Errorf("at a width of %d, the claim with the least memory is %s and the one with the most %s", width, least, most)
		}
		if n := eval[int](b, `document.querySelectorAll("th[aria-sort=ascending], th[aria-sort=descending]").length`); n != 1 {
			t.Errorf("the list is sorted by %d columns", n)
		}
		b.run(`history.back()`)
		b.until(`document.querySelector("th[aria-sort=ascending]")?.textContent.startsWith("MEMORY")`)
	}
}

// A user without a mouse goes from the fleet to a node and a claim, and back.
func TestKeyboard(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	b.tabTo("#main")
	b.press(kb.Enter)
	b.until(`document.activeElement.id === "main"`)
	b.tabTo("/nodes/dgx-01")
	b.press(kb.Enter)
	b.until(`document.querySelector("h1").textContent === "Node dgx-01"`)
	b.tabTo("/claims/team-a/notebook-1")
	b.press(kb.Enter)
	b.until(`document.querySelector("h1").textContent === "claim team-a/notebook-1"`)
	b.tabTo("/")
	b.press(kb.Enter)
	b.until(`document.querySelector("h1").textContent === "Fleet"`)
	b.tabTo("/nodes/dgx-01?q=gpu-1b-00")
	b.press(kb.Enter)
	b.until(`location.search === "?q=gpu-1b-00" && document.querySelector("h1").textContent === "Node dgx-01"`)
	// The filter.
	b.goTo("/")
	b.focus("#q")
	b.press("edge")
	b.press(kb.Enter)
	b.until(`location.search === "?q=edge" && document.querySelectorAll("tbody tr").length === 4`)
	if value := eval[string](b, `document.getElementById("q").value`); value != "edge" {
		t.Errorf("the filter has %q", value)
	}
}

// A page changes with the cluster, but keeps the focus, the user's text and the scroll
// position.
func TestLive(t *testing.T) {
	c := busy(t)
	b := open(t, serve(t, c))
	b.goTo("/holders")
	b.until(`document.getElementById("state").textContent === "Live, every 1 s"`)
	b.size(1200, 300)
	b.run(`(() => {
		document.getElementById("q").value = "typed";
		window.kept = document.querySelector('a[href="/claims/team-a/notebook-1"]');
		kept.focus({ preventScroll: true });
		scrollTo(0, 120);
	})()`)
	c.change(func() { c.hold("dgx-02", "aardvark", "new", "") })
	b.shows("aardvark")
	unchanged := `document.activeElement === kept && kept.isConnected && document.getElementById("q").value === "typed" && scrollY >= 120`
	if !eval[bool](b, unchanged) {
		t.Errorf("after a new claim, the focus is at %s and the scroll position is %v", eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`), eval[float64](b, `scrollY`))
	}
	c.change(func() {
		c.Claims = slices.DeleteFunc(c.Claims, func(claim *resourceapi.ResourceClaim) bool {
			return claim.Namespace == "aardvark" || claim.Name == "training"
		})
	})
	b.until(`document.querySelector('a[href="/claims/research/training"]') === null && !document.body.innerText.includes("aardvark")`)
	if !eval[bool](b, unchanged) {
		t.Errorf("after a claim has gone, the focus is at %s", eval[string](b, `document.activeElement.outerHTML.slice(0, 200)`))
	}

	// An API server that fails: the page says so, and keeps the last reading.
	c.change(func() { c.failing = true })
	b.shows("The last reading of the cluster failed")
	b.shows("notebook-1")
	c.change(func() { c.failing = false })
	b.until(`!document.body.innerText.includes("The last reading of the cluster failed")`)

	// A page that pauses changes later.
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.shows("Paused")
	c.change(func() { c.hold("dgx-02", "aardvark", "newer", "") })
	b.until(`document.getElementById("pause").textContent === "Resume"`)
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.shows("newer")

	b.goTo("/nodes/dgx-02")
	c.change(func() { c.hold("dgx-02", "aardvark", "newest", "") })
	b.shows("newest")
}

// Names and attributes that others choose are text on every page.
func TestHostileNames(t *testing.T) {
	c := busy(t)
	hostile := `"'><script>window.hostile = 1</script><img src=x onerror="window.hostile = 2"><svg onload="window.hostile = 3">`
	for _, slice := range c.Slices {
		for i := range slice.Spec.Devices {
			if attributes := slice.Spec.Devices[i].Attributes; attributes != nil {
				attributes[v1alpha1.AttributeProductName] = resourceapi.DeviceAttribute{StringValue: &hostile}
				attributes["resource.kubernetes.io/pcieRoot"] = resourceapi.DeviceAttribute{StringValue: &hostile}
			}
		}
	}
	for _, pod := range c.Pods {
		pod.Labels = map[string]string{"hostile": hostile}
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].Message = hostile
		}
	}
	for _, claim := range c.Claims {
		for i := range claim.Status.Devices {
			claim.Status.Devices[i].Conditions[0].Message = hostile
		}
	}
	c.events = []corev1.Event{{Type: corev1.EventTypeWarning, Reason: "Hostile", Message: hostile}}
	b := open(t, serve(t, c))
	b.ignore("/nodes/none")
	shown := 0
	for _, p := range paths {
		b.goTo(p.path)
		// A refresh parses the page again.
		refreshed := slices.Contains([]string{"/", "/nodes/dgx-01", "/pods/research/finetuning"}, p.path)
		b.until(fmt.Sprintf("%t || ", !refreshed) + `performance.getEntriesByType("resource").some((e) => e.initiatorType === "fetch")`)
		if eval[bool](b, `window.hostile !== undefined || document.scripts.length !== 1 || document.images.length !== 0 || document.querySelector("[onload], [onerror]") !== null`) {
			t.Errorf("%s: the names are not text", p.path)
		}
		if eval[bool](b, `document.body.textContent.includes("<script>window.hostile")`) {
			shown++
		}
	}
	if shown < 5 {
		t.Errorf("%d pages show the names", shown)
	}
}

// A page of another site, in the browser that has the cookie, reads nothing.
func TestRefused(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<!doctype html><title>other</title><iframe src="%s/"></iframe>`, b.base)
	}))
	defer other.Close()
	b.ignore("frame-ancestors", "CORS policy", "net::ERR_FAILED") // the browser reports its refusals
	b.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	for _, script := range []string{
		`fetch("` + b.base + `/holders", { credentials: "include" })`,
		`import("` + b.base + `/assets/ui.js")`,
	} {
		if eval[bool](b, script+`.then(() => true, () => false)`) {
			t.Errorf("another site can: %s", script)
		}
	}
	if eval[bool](b, `(() => { try { return document.querySelector("iframe").contentDocument !== null } catch { return false } })()`) {
		t.Error("another site can read the page in a frame")
	}
}

// A program of another user listens on another port of this machine. Browsers send the cookies
// of a host to all of its ports.
func TestAServerOnAnotherPortGetsNoCookie(t *testing.T) {
	b := open(t, serve(t, busy(t)))
	cookies := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookies <- r.Host + " gets " + r.Header.Get("Cookie")
		_, _ = fmt.Fprint(w, "<!doctype html><link rel=icon href=data:,><title>other</title>")
	}))
	defer other.Close()
	for _, host := range []string{"127.0.0.1", "localhost", "other.localhost"} {
		b.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", host, 1)))
	}
	close(cookies)
	n := 0
	for got := range cookies {
		n++
		if !strings.HasSuffix(got, " gets ") {
			t.Error(got)
		}
	}
	if n < 3 {
		t.Errorf("the other server gets %d requests", n)
	}
	// The browser still has the cookie of the pages.
	b.goTo("/holders")
	b.shows("Holders")
}
