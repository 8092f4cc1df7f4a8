// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/web"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

//go:embed assets
var assets embed.FS

// Source reads the cluster of the pages.
type Source interface {
	// Read returns the current cluster.
	Read(ctx context.Context) (*rows.Cluster, error)
	// Warnings returns the warnings about a pod, except those of the scheduler. The error wraps
	// [gpu.ErrPermission] if the user may not list events.
	Warnings(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error)
	// Inspect checks the cluster and reads the use from its agents.
	Inspect(ctx context.Context, c *rows.Cluster) (Inspection, error)
}

// Site is the pages.
type Site struct {
	server   *web.Server
	source   Source
	readings *poll[reading]
	// inspections are of the cluster of a reading.
	inspections *poll[Inspection]
	refresh     time.Duration
	// explaining is a lock that a request stops waiting for when it ends. It guards answers.
	explaining chan struct{}
	answers    map[rows.Question]answer
}

// Listen returns the pages of a cluster on a port of 127.0.0.1. Port 0 is any free one.
func Listen(ctx context.Context, port uint16, source Source, refresh time.Duration) (*Site, error) {
	server, err := web.Listen(ctx, port)
	if err != nil {
		return nil, err
	}
	// A reading is fresh for less time than a page waits, so each refresh shows a new one.
	s := newSite(source, refresh/2, refresh)
	s.server = server
	return s, nil
}

func newSite(source Source, fresh, refresh time.Duration) *Site {
	s := &Site{
		source: source, readings: newReadings(source.Read, fresh), refresh: refresh,
		explaining: make(chan struct{}, 1), answers: map[rows.Question]answer{},
	}
	s.inspections = s.newInspections(max(fresh, leastInspection))
	return s
}

// Address returns the address that opens the first page. It has a token.
func (s *Site) Address() string { return s.server.Address() }

// Serve serves the pages until ctx ends.
func (s *Site) Serve(ctx context.Context, errorLog *log.Logger) error {
	return s.server.Serve(ctx, s.handler(), errorLog)
}

// page is the contents of a page.
type page struct {
	title string
	main  markup.Parts
}

// pageFunc returns a page about a reading. An error that wraps [gpu.ErrNotFound] is for an
// object that does not exist.
type pageFunc func(ctx context.Context, r *reading, q *http.Request) (page, error)

func (s *Site) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]pageFunc{
		"/{$}":                       fleetPage,
		"/nodes/{node}":              nodePage,
		"/holders":                   holdersPage,
		"/claims/{namespace}/{name}": s.explanationPage("claim/"),
		"/pods":                      s.podsPage,
		"/pods/{namespace}/{name}":   s.explanationPage("pod/"),
		"/namespaces":                namespacesPage,
		"/findings":                  s.findingsPage,
		"/": func(_ context.Context, _ *reading, q *http.Request) (page, error) {
			return page{}, fmt.Errorf("page %s: %w", q.URL.Path, gpu.ErrNotFound)
		},
	} {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, q *http.Request) { s.serve(w, q, f) })
	}
	mux.HandleFunc("GET /assets/{name}", func(w http.ResponseWriter, q *http.Request) { serveAsset(w, q, q.PathValue("name")) })
	// Browsers read it for pages without an icon of their own.
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, q *http.Request) { serveAsset(w, q, "icon.svg") })
	return mux
}

func serveAsset(w http.ResponseWriter, q *http.Request, name string) {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, q)
		return
	}
	http.ServeContent(w, q, name, time.Time{}, bytes.NewReader(text))
}

// serve writes a page, or the reason why there is none.
func (s *Site) serve(w http.ResponseWriter, q *http.Request, f pageFunc) {
	r, failure := s.readings.get(q.Context())
	var p page
	status, err := http.StatusServiceUnavailable, failure
	if r != nil {
		own := *r
		r = &own
		r.inspection, r.inspectionFailure = s.inspections.peek(q.Context())
		status = http.StatusOK
		p, err = f(q.Context(), r, q)
	}
	switch {
	case r == nil:
		p = page{"The cluster cannot be read", nil}
	case errors.Is(err, gpu.ErrNotFound):
		status = http.StatusNotFound
		p = page{"Not found", markup.Parts{paragraph("", err.Error()), markup.E("p", link("To the fleet", ""))}}
	case err != nil:
		status = http.StatusInternalServerError
		if errors.Is(err, gpu.ErrPermission) {
			status = http.StatusForbidden
		}
		p = page{"This page cannot be shown", markup.Parts{paragraph("alert", err.Error())}}
	}
	var text strings.Builder
	text.WriteString("<!doctype html>")
	if err := markup.Render(&text, s.frame(p, r, failure, q)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String())) // the browser has gone
}
