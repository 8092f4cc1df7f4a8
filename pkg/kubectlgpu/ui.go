// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/picture"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/web"
)

//go:embed assets
var assets embed.FS

func (o *options) newUI() *cobra.Command {
	var port uint16
	var refresh time.Duration
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Pages for a browser of this machine: the fleet, nodes, GPUs, claims, and why pods wait",
		Long: "Serves pages on 127.0.0.1 until Ctrl-C, and prints their address. The pages change nothing and show what\n" +
			"your user may read. The address has a token: do not share it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if refresh < time.Second {
				return fmt.Errorf("--refresh %s: %w: want at least 1s", refresh, gpu.ErrInvalid)
			}
			// Without a kubeconfig, the pages could show nothing.
			if _, err := o.connect(o.config); err != nil {
				return err
			}
			server, err := web.Listen(cmd.Context(), port)
			if err != nil {
				return err
			}
			fmt.Fprintln(o.Out, "Open this address in a browser of this machine. Ctrl-C ends the pages.") //nolint:errcheck // the address below fails too
			if _, err := fmt.Fprintln(o.Out, server.Address()); err != nil {
				return err
			}
			// A reading is fresh for less time than a page waits, so each refresh shows a new one.
			s := newSite(newReadings(func(ctx context.Context) (*view, error) { return o.readView(ctx) }, refresh/2), refresh)
			ctx, stop := context.WithCancel(cmd.Context())
			var running sync.WaitGroup
			running.Go(func() { s.readings.run(ctx) })
			err = server.Serve(ctx, s.handler(), log.New(o.ErrOut, "", log.LstdFlags))
			stop()
			running.Wait()
			return err
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "port of the pages on 127.0.0.1; any free one if it is 0")
	cmd.Flags().DurationVar(&refresh, "refresh", 5*time.Second, "time between refreshes of a page")
	return cmd
}

// site is the pages.
type site struct {
	readings *readings
	refresh  time.Duration
	// explaining is full while explained, or an explanation, is in use.
	explaining chan struct{}
	explained  map[explanationKey]explained
}

// explanationKey is the namespace of a pod or claim and its name for [explain].
type explanationKey struct{ namespace, name string }

func newSite(r *readings, refresh time.Duration) *site {
	return &site{readings: r, refresh: refresh, explaining: make(chan struct{}, 1), explained: map[explanationKey]explained{}}
}

// page is the contents of a page.
type page struct {
	title string
	main  markup.Parts
}

// pageFunc returns a page about a reading. An error that wraps [gpu.ErrNotFound] is for an
// object that does not exist.
type pageFunc func(ctx context.Context, r *reading, q *http.Request) (page, error)

func (s *site) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]pageFunc{
		"/{$}":                           fleetPage,
		"/nodes/{node}":                  nodePage,
		"/nodes/{node}/gpus/{gpu}":       gpuPage,
		"/claims":                        claimsPage,
		"/claims/{namespace}/{name}":     claimPage,
		"/pods":                          podsPage,
		"/pods/{namespace}/{name}":       s.podPage,
		"/claims/{namespace}/{name}/why": s.whyPage,
		"/namespaces":                    namespacesPage,
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
	if name == "ui.css" {
		text = append(text, picture.Style()...)
	}
	http.ServeContent(w, q, name, time.Time{}, bytes.NewReader(text))
}

// serve writes a page, or the reason why there is none.
func (s *site) serve(w http.ResponseWriter, q *http.Request, f pageFunc) {
	r, failure := s.readings.get(q.Context())
	var p page
	status, err := http.StatusServiceUnavailable, failure
	if r != nil {
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
		if status = http.StatusInternalServerError; errors.Is(err, gpu.ErrPermission) {
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

// frame returns the whole page: navigation, the contents, and the age of the reading.
func (s *site) frame(p page, r *reading, failure error, q *http.Request) *markup.Element {
	var menu markup.Parts
	for _, entry := range []struct{ name, path string }{{"Fleet", ""}, {"Claims", "claims"}, {"Waiting", "pods"}, {"Namespaces", "namespaces"}} {
		to := link(entry.name, entry.path)
		if q.URL.Path == "/"+entry.path {
			to = markup.E("a", markup.Attr("href", "/"+entry.path), markup.Attr("aria-current", "page"), markup.Text(entry.name))
		}
		menu = append(menu, markup.E("li", to))
	}
	return markup.E("html", markup.Attr("lang", "en"),
		markup.E("head",
			markup.E("meta", markup.Attr("charset", "utf-8")),
			markup.E("meta", markup.Attr("name", "viewport"), markup.Attr("content", "width=device-width, initial-scale=1")),
			markup.E("meta", markup.Attr("name", "color-scheme"), markup.Attr("content", "light dark")),
			markup.E("title", markup.Text(p.title+" · kubectl gpu")),
			markup.E("link", markup.Attr("rel", "stylesheet"), markup.Attr("href", "/assets/ui.css")),
			markup.E("script", markup.Attr("type", "module"), markup.Attr("src", "/assets/ui.js")),
		),
		markup.E("body", markup.Attr("data-refresh", fmt.Sprint(s.refresh.Milliseconds())),
			markup.E("a", markup.Attr("class", "skip"), markup.Attr("href", "#main"), markup.Text("Skip to the contents")),
			markup.E("header",
				markup.E("span", markup.Attr("class", "brand"), markup.Text("kubectl gpu")),
				markup.E("nav", markup.Attr("aria-label", "Pages"), markup.E("ul", menu)),
				markup.E("div", markup.Attr("class", "live"),
					markup.E("span", markup.Attr("id", "state"), markup.Attr("role", "status")),
					markup.E("button", markup.Attr("id", "pause"), markup.Attr("type", "button"), markup.Attr("hidden", ""), markup.Text("Pause")),
				),
			),
			markup.E("main", markup.Attr("id", "main"), markup.Attr("tabindex", "-1"),
				markup.E("h1", markup.Text(p.title)),
				problems(r, failure),
				p.main,
				age(r),
			),
		),
	)
}

// problems returns what a page lacks: the last reading has failed, or the user lacks rights.
func problems(r *reading, failure error) markup.Parts {
	var all markup.Parts
	if failure != nil {
		text := "The last reading of the cluster failed: " + failure.Error() + "."
		if r != nil {
			text += " The page shows the one of " + clock(r.at) + "."
		}
		all = append(all, markup.E("p", markup.Attr("class", "alert"), markup.Attr("role", "alert"), markup.Text(text)))
	}
	if r != nil {
		for _, sentence := range r.sentences() {
			all = append(all, paragraph("note", sentence))
		}
	}
	return all
}

func age(r *reading) markup.Parts {
	if r == nil {
		return nil
	}
	return markup.Parts{markup.E("p", markup.Attr("class", "age"), markup.Text("Read from the cluster at "),
		markup.E("time", markup.Attr("datetime", r.at.Format(time.RFC3339)), markup.Text(clock(r.at))))}
}

func clock(t time.Time) string { return t.Format("15:04:05") }
