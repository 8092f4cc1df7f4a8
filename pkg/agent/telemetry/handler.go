// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// checkPatience is the timeout of all checks of a probe together. It is shorter
	// than the kubelet's timeout of the probe.
	checkPatience = 3 * time.Second
	// scrapePatience is the timeout of a scrape, and maxScrapes the limit of
	// concurrent scrapes.
	scrapePatience = 10 * time.Second
	maxScrapes     = 4
)

// Check is one condition of liveness or readiness.
type Check struct {
	Name string
	// Err returns nil if the condition holds, or else the reason in one line.
	Err func() error
}

// Handler serves /metrics (metrics and state), /healthz (alive) and /readyz (ready). The
// last two list the checks, one per line. Their status is 200 if all checks pass, and 503
// if a check fails or hangs.
func Handler(metrics *Metrics, state State, alive, ready []Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{metrics.registry, state.registry()}, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapePatience,
		// One metric that is not valid does not cost the others.
		ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.Handle("GET /healthz", newProbe(alive, checkPatience))
	mux.Handle("GET /readyz", newProbe(ready, checkPatience))
	return mux
}

type probe struct {
	checks   []*boundedCheck
	patience time.Duration
}

func newProbe(checks []Check, patience time.Duration) *probe {
	p := &probe{patience: patience}
	for _, check := range checks {
		p.checks = append(p.checks, &boundedCheck{Check: check})
	}
	return p
}

func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), p.patience)
	defer cancel()
	var text strings.Builder
	status := http.StatusOK
	calls := make([]*checkCall, len(p.checks))
	for i, check := range p.checks {
		calls[i] = check.start()
	}
	for i, check := range p.checks {
		if err := calls[i].wait(ctx); err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "not ok  %s: %v\n", check.Name, err)
			continue
		}
		fmt.Fprintf(&text, "ok      %s\n", check.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String())) // fails only if the client has left
}

// boundedCheck runs a check at most once at a time. So probes of a stuck process do
// not accumulate goroutines.
type boundedCheck struct {
	Check
	mu  sync.Mutex
	now *checkCall // the current run, or nil
}

// checkCall is one run of a check. err is set before done is closed.
type checkCall struct {
	since time.Time
	done  chan struct{}
	err   error
}

// start returns the current run, or starts one.
func (c *boundedCheck) start() *checkCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		return c.now
	}
	call := &checkCall{since: time.Now(), done: make(chan struct{})}
	c.now = call
	go func() {
		defer close(call.done)
		err := c.Err()
		c.mu.Lock()
		defer c.mu.Unlock()
		call.err, c.now = err, nil
	}()
	return call
}

// wait returns the result of the check, or an error if ctx ends first.
func (c *checkCall) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("no answer for %v", time.Since(c.since).Round(time.Second))
	}
}
