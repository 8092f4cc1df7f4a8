// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// documents makes a folder with one document, in which SITE is the address of a server.
func documents(t *testing.T, site, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "SITE", site)
	if err := os.WriteFile(filepath.Join(folder, "docs/page.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// listen serves the handler as http://site.test to the checker.
func listen(t *testing.T, handler http.HandlerFunc) (string, checker) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return "http://site.test", checker{client: &http.Client{Transport: &http.Transport{DialContext: dial}}, atATime: 2}
}

func TestDeadLinksFailWithTheirDocument(t *testing.T) {
	site, checker := listen(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/there":
		case "/moved":
			http.Redirect(w, r, "/there", http.StatusMovedPermanently)
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	root := documents(t, site, "[a](SITE/there#part) [b](SITE/moved) [c](SITE/refused) [d](SITE/gone) <SITE/gone-too>\n")
	var out strings.Builder
	err := run(t.Context(), &out, root, false, checker)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"dead: " + site + "/gone: 404 Not Found (in docs/page.md)", "dead: " + site + "/gone-too: 404"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "dead: "); n != 2 {
		t.Errorf("%d dead links, want 2:\n%v", n, err)
	}
	for _, want := range []string{"unclear: " + site + "/refused: 403 Forbidden", "5 links to other sites, 2 dead"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestASecondAttemptIsEnough(t *testing.T) {
	var calls atomic.Int32
	site, checker := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	if err := run(t.Context(), &strings.Builder{}, documents(t, site, "[a](SITE)"), false, checker); err != nil {
		t.Error(err)
	}
}

func TestASiteThatDoesNotExistIsDead(t *testing.T) {
	checker := checker{client: &http.Client{Transport: &http.Transport{}}}
	err := run(t.Context(), &strings.Builder{}, documents(t, "http://127.0.0.2:1", "[a](SITE/x)"), false, checker)
	if err == nil || !strings.Contains(err.Error(), "dead: http://127.0.0.2:1/x: ") {
		t.Errorf("error %v", err)
	}
}

func TestOnlyLinksToOtherSitesOutsideOfCodeAreChecked(t *testing.T) {
	root := documents(t, "", "[in](other.md) `[c](https://code.test)` [e](https://registry.example.com/x) [l](http://localhost:8080)\n"+
		"```text\n[f](https://fence.test)\n```\n[yes](https://yes.test/a(b) [no anchor](https://yes.test/page#one) [again](https://yes.test/page#two)\n")
	var out strings.Builder
	if err := run(t.Context(), &out, root, true, checker{}); err != nil {
		t.Fatal(err)
	}
	want := "https://yes.test/a(b\tdocs/page.md\nhttps://yes.test/page\tdocs/page.md\n"
	if out.String() != want {
		t.Errorf("links:\n%swant:\n%s", out.String(), want)
	}
}
