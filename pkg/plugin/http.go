package plugin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one condition of being alive or ready.
type Check struct {
	Name string
	// Err is nil where the condition holds, and else says in one line what is
	// missing.
	Err func() error
}

// Handler answers /metrics, /healthz (alive) and /readyz (ready). The latter
// two list every check, one a line, with status 200 where all hold and 503
// where one does not.
func Handler(metrics *Metrics, alive, ready []Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", checks(alive))
	mux.Handle("GET /readyz", checks(ready))
	return mux
}

type checks []Check

func (c checks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	status := http.StatusOK
	for _, check := range c {
		if err := check.Err(); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "not ok  %s: %v\n", check.Name, err)
			continue
		}
		fmt.Fprintf(&text, "ok      %s\n", check.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String())) // a client that left needs no answer
}
