// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func listen(t *testing.T) *Server {
	t.Helper()
	s, err := Listen(t.Context(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.listener.Close() })
	return s
}

func hello() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.URL.Path)
	})
}

func TestGuard(t *testing.T) {
	s := listen(t)
	for name, c := range map[string]struct {
		method, host, target, cookie string
		status                       int
	}{
		"the cookie":               {"GET", s.host + ":1", "/a", s.token, 200},
		"the cookie, by HEAD":      {"HEAD", s.host + ":2", "/a", s.token, 200},
		"in capitals":              {"GET", strings.ToUpper(s.host), "/a", s.token, 200},
		"the token":                {"GET", s.host, "/a?token=" + s.token, "", 200},
		"neither":                  {"GET", s.host + ":1", "/a", "", 401},
		"a wrong cookie":           {"GET", s.host + ":1", "/a", "x" + s.token[1:], 401},
		"a wrong token":            {"GET", s.host + ":1", "/a?token=x", "", 401},
		"an empty token":           {"GET", s.host + ":1", "/a?token=", "", 401},
		"the address":              {"GET", "127.0.0.1:1", "/a?token=" + s.token, "", 421},
		"localhost":                {"GET", "localhost:1", "/a", s.token, 421},
		"IPv6":                     {"GET", "[::1]:2", "/a", s.token, 421},
		"another name of the kind": {"GET", "x" + s.host, "/a", s.token, 421},
		"a name of a site":         {"GET", "rebound.example.com", "/a", s.token, 421},
		"a name that begins alike": {"GET", s.host + ".example.com", "/a?token=" + s.token, "", 421},
		"an address of a network":  {"GET", "192.168.1.1", "/a", s.token, 421},
		"no name":                  {"GET", "", "/a", s.token, 421},
		"POST":                     {"POST", s.host + ":1", "/a", s.token, 405},
		"DELETE with the token":    {"DELETE", s.host + ":1", "/a?token=" + s.token, "", 405},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), c.method, c.target, nil)
			r.Host = c.host
			if c.cookie != "" {
				r.AddCookie(&http.Cookie{Name: cookie, Value: c.cookie})
			}
			w := httptest.NewRecorder()
			s.Guard(hello()).ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if served := strings.Contains(w.Body.String(), "hello"); served != (c.cookie == s.token && c.status == 200) {
				t.Errorf("the page is served: %t", served)
			}
			if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("policy %q", policy)
			}
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
		})
	}
}

// A browser enters by the printed address, and has the cookie afterwards.
func TestServe(t *testing.T) {
	s := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, hello(), log.New(io.Discard, "", 0)) }()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	// Browsers find names below localhost on this machine.
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	browser := &http.Client{Jar: jar, Timeout: time.Minute, Transport: transport}
	get := func(address string) (body, cookie string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		response, err := browser.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		require.NoError(t, err)
		return string(text), response.Header.Get("Set-Cookie")
	}
	address, err := url.Parse(s.Address())
	require.NoError(t, err)
	address.Path = "/nodes/a b"
	body, cookie := get(address.String() + "&q=%22%3E")
	if want := `url=/nodes/a%20b?q=%22%3E"`; !strings.Contains(body, want) || strings.Contains(body, s.token) {
		t.Errorf("got %s, want %s and no token", body, want)
	}
	for _, want := range []string{"HttpOnly", "SameSite=Strict"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("cookie %q, want %s", cookie, want)
		}
	}
	address.RawQuery = ""
	if body, _ := get(address.String()); body != "hello /nodes/a b" {
		t.Errorf("with the cookie: %s", body)
	}
	// Another program on this machine gets no cookie: it has another name.
	for _, other := range []string{"http://127.0.0.1:" + s.port, "http://localhost:" + s.port, "http://other.localhost:" + s.port} {
		u, err := url.Parse(other)
		require.NoError(t, err)
		if cookies := jar.Cookies(u); len(cookies) > 0 {
			t.Errorf("%s gets %v", other, cookies)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestAPortThatIsInUse(t *testing.T) {
	s := listen(t)
	u, _ := url.Parse(s.Address())
	var port uint16
	for _, digit := range u.Port() {
		port = port*10 + uint16(digit-'0')
	}
	if _, err := Listen(t.Context(), port); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}
