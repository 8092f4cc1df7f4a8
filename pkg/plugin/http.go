// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// checkPatience is how long all checks of a probe may take together, less than
	// the kubelet waits for the answer.
	checkPatience = 3 * time.Second
	// scrapePatience is how long a scrape may take, and maxScrapes how many may be
	// under way.
	scrapePatience = 10 * time.Second
	maxScrapes     = 4
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
// where one does not. A check that hangs does not hold.
func Handler(metrics *Metrics, alive, ready []Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapePatience,
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
	_, _ = w.Write([]byte(text.String())) // a client that left needs no answer
}

// boundedCheck runs a check once at a time: while one run hangs, no other is
// started, so that probes of a stuck process pile up nothing.
type boundedCheck struct {
	Check
	mu  sync.Mutex
	now *checkCall // the run under way, if any
}

// checkCall is one run of a check. err is set before done is closed.
type checkCall struct {
	since time.Time
	done  chan struct{}
	err   error
}

// start returns the run under way, or begins one.
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

// wait returns what the check says, or an error if it has not by the end of ctx.
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
