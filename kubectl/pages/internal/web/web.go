// SPDX-License-Identifier: Apache-2.0

// Package web serves pages to the browsers of the user who has started the program. No
// other program or site can read them:
//
//   - it listens on the loopback interface only, and answers requests for one random name below
//     localhost only, so that a site cannot reach it by its own DNS name (DNS rebinding);
//   - each request has a random token, in the address of the first one and in a cookie of the
//     others, which browsers do not send for other sites. Browsers send the cookies of a host to
//     all of its ports, so the cookie must not be 127.0.0.1's: a program of another user can
//     listen there, and does not know the random name;
//   - it answers GET and HEAD only, and pages may load nothing from elsewhere.
package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
)

// Server serves pages on the loopback interface.
type Server struct {
	listener net.Listener
	// host is the name of the host of the pages, which browsers find on this machine.
	host, port, token string
}

// Listen returns a server on a port; any free one if it is 0.
func Listen(ctx context.Context, port uint16) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("listen for browsers: %w", err)
	}
	_, chosen, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return &Server{listener: listener, host: strings.ToLower(rand.Text()) + localhost, port: chosen, token: rand.Text()}, nil
}

// Address returns the address that opens the first page.
func (s *Server) Address() string {
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(s.host, s.port), Path: "/", RawQuery: url.Values{tokenKey: {s.token}}.Encode()}).String()
}

const (
	tokenKey = "token"
	cookie   = "kubectl-gpu"
	// localhost ends the names that browsers find on this machine without DNS (RFC 6761).
	localhost = ".localhost"
)

// Limits of a connection. An answer can take as long as a reading of a large cluster.
const (
	headerTimeout = 10 * time.Second
	answerTimeout = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	closeTimeout  = time.Second
)

// Serve serves the pages until ctx ends, which also ends the requests.
func (s *Server) Serve(ctx context.Context, pages http.Handler, errorLog *log.Logger) error {
	server := &http.Server{
		Handler: s.Guard(pages), ErrorLog: errorLog, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 16,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		_ = server.Close() // open connections do not end by themselves
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Guard returns a handler that passes on the requests of the user's browsers only.
func (s *Server) Guard(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		switch {
		case !s.isHost(r.Host):
			http.Error(w, "This server answers requests for the name in the address only that kubectl gpu ui has printed.", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "These pages change nothing: only GET and HEAD are allowed.", http.StatusMethodNotAllowed)
		case s.isToken(r.URL.Query().Get(tokenKey)):
			s.enter(w, r)
		case !s.hasToken(r):
			http.Error(w, "Open the address that kubectl gpu ui has printed. It has a token, which this address lacks.", http.StatusUnauthorized)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}

// enter sets the cookie and leads to the page without the token in its address. A redirect
// would lose the cookie if the address comes from a link of another site.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	query.Del(tokenKey)
	page := url.URL{Path: path.Clean("/" + r.URL.Path), RawQuery: query.Encode()}
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html>") //nolint:errcheck // the browser has gone
	_ = markup.Render(w, markup.E("html", markup.Attr("lang", "en"),
		markup.E("head", markup.E("meta", markup.Attr("http-equiv", "refresh"), markup.Attr("content", "0; url="+page.String())), markup.E("title", markup.Text("kubectl gpu"))),
		markup.E("body", markup.E("a", markup.Attr("href", page.String()), markup.Text("Open the page"))),
	))
}

func (s *Server) hasToken(r *http.Request) bool {
	found, err := r.Cookie(cookie)
	return err == nil && s.isToken(found.Value)
}

func (s *Server) isToken(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// isHost reports whether a Host header has the name of the pages. The port is any: the user can
// forward another one.
func (s *Server) isHost(host string) bool {
	u := url.URL{Host: host}
	return subtle.ConstantTimeCompare([]byte(strings.ToLower(u.Hostname())), []byte(s.host)) == 1
}
