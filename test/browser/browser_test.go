// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience bounds a test: a browser on a busy machine is slow.
const patience = 5 * time.Minute

// tab is a page of a browser.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	problems []string
	ignored  []string
}

// open starts a browser and opens the printed address. Errors of scripts and of the content
// security policy fail the test.
func open(t *testing.T, address string) *tab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.DisableGPU,
	)
	if os.Geteuid() == 0 {
		// The sandbox needs another user. The pages are our own.
		options = append(options, chromedp.NoSandbox)
	}
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	u, err := url.Parse(address)
	must(t, err)
	b := &tab{t: t, ctx: ctx, base: "http://" + u.Host}
	// Subscribed before the first page.
	console := chromedp.Console(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for message, err := range console {
			if err == nil {
				b.problem(message.String() + " " + message.URL)
			}
		}
	})
	t.Cleanup(func() {
		closeTab()
		reading.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, problem := range b.problems {
			if !slices.ContainsFunc(b.ignored, func(text string) bool { return strings.Contains(problem, text) }) {
				t.Errorf("the browser reports: %s", problem)
			}
		}
	})
	b.size(1200, 900)
	b.do(chromedp.Navigate(address))
	// The first page leads on to the one without the token. Until that is loaded, the browser
	// may follow a link to an anchor twice, and takes the focus back from where Tab led.
	b.until(`location.search === "" && document.readyState === "complete"`)
	return b
}

func (b *tab) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

// ignore drops problems with one of the texts, which the test causes.
func (b *tab) ignore(texts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ignored = append(b.ignored, texts...)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	must(b.t, chromedp.Do(b.ctx, actions...))
}

func (b *tab) goTo(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// eval returns the value of an expression in the page, or of its promise.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	must(b.t, err)
	return value
}

// until waits until an expression in the page is true. It fails while the browser goes to
// another page.
func (b *tab) until(expression string) {
	b.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		met, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if met {
			return
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s: %v, %v", expression, b.ctx.Err(), err)
		}
	}
}

// shows waits until the page has the text.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// colors chooses the colors that the user prefers: light or dark.
func (b *tab) colors(scheme string) {
	b.t.Helper()
	b.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	})
}

// run runs a script in the page.
func (b *tab) run(script string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](script))
}

// focus focuses an element. A refresh may replace it between two actions of chromedp,
// so this is one.
func (b *tab) focus(selector string) {
	b.t.Helper()
	b.run(fmt.Sprintf(`document.querySelector(%q).focus()`, selector))
}

// press presses a key, or the keys of a text.
func (b *tab) press(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key))
}

// tabTo presses Tab until a link to the page has the focus. The focus must be visible all
// the way.
func (b *tab) tabTo(path string) {
	b.t.Helper()
	for range 100 {
		b.press(kb.Tab)
		if !eval[bool](b, `(() => {
			const focused = document.activeElement;
			return focused.matches(":focus-visible") && getComputedStyle(focused).outlineStyle !== "none" && focused.getClientRects().length > 0;
		})()`) {
			b.t.Fatalf("the focus is not visible at %s", eval[string](b, `document.activeElement.outerHTML.slice(0, 300)`))
		}
		if eval[string](b, `document.activeElement.getAttribute("href") || ""`) == path {
			return
		}
	}
	b.t.Fatalf("100 times Tab do not lead to %s", path)
}
