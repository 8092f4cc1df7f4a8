// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/pages/internal/markup"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// mostChanges bounds the health history. The oldest changes are dropped.
const mostChanges = 500

// change is a change of the health of a GPU.
type change struct {
	// at is the time of the reading that has found it.
	at        time.Time
	node, gpu string
	from, to  string
	// number is the position among all changes.
	number int
}

// history is the changes of the health of GPUs since the program has started.
type history struct {
	mu sync.Mutex
	// since is the time of the first reading.
	since time.Time
	// health is the last known one, by node and GPU.
	health  map[[2]string]string
	changes []change
	// found is the number of all changes, also of dropped ones.
	found int
}

// Healths of a GPU that is well, and of one without devices.
const (
	healthOK     = string(rows.HealthOK)
	notPublished = "not published"
)

// observe compares a reading with the one before. It skips nodes whose slices are being
// replaced.
func (h *history) observe(r *reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.health == nil
	if first {
		h.health, h.since = map[[2]string]string{}, r.at
	}
	seen, incomplete := map[[2]string]bool{}, map[string]bool{}
	for _, node := range r.rows {
		incomplete[node.Name] = node.Incomplete
		if node.Incomplete {
			continue
		}
		for _, g := range node.GPUs {
			if g.Name == "" {
				continue
			}
			key := [2]string{node.Name, g.Name}
			seen[key] = true
			h.set(key, steadyText(g.Health), r.at, first)
		}
	}
	for key, state := range h.health {
		if !seen[key] && !incomplete[key[0]] && state != notPublished {
			h.set(key, notPublished, r.at, first)
		}
	}
}

func (h *history) set(key [2]string, state string, at time.Time, first bool) {
	old, known := h.health[key]
	if !known {
		old = notPublished
	}
	h.health[key] = state
	if first || old == state {
		return
	}
	h.found++
	h.changes = append(h.changes, change{at, key[0], key[1], old, state, h.found})
	if extra := len(h.changes) - mostChanges; extra > 0 {
		h.changes = slices.Delete(h.changes, 0, extra)
	}
}

// list returns the changes, the newest first, and the number of dropped ones.
func (h *history) list() (changes []change, dropped int, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changes = slices.Clone(h.changes)
	slices.Reverse(changes)
	return changes, h.found - len(h.changes), h.since
}

// historyPage shows how the health of GPUs has changed since the program has started.
func (s *Site) historyPage(_ context.Context, r *reading, q *http.Request) (page, error) {
	changes, dropped, since := s.history.list()
	found := slices.DeleteFunc(changes, func(c change) bool { return !matches(q, c.node, c.gpu, c.from, c.to) })
	parts := markup.Parts{
		paragraph("hint", fmt.Sprintf("Changes of the health of GPUs since the pages were started at %s. They end with the pages.", clock(since))),
		filterForm(q, "Changes with a node, GPU or health"),
		changesOf(r).draw(q, found),
	}
	if dropped > 0 {
		parts = append(parts, paragraph("hint", fmt.Sprintf("The %d older changes are left out.", dropped)))
	}
	return page{"Health history", parts}, nil
}

// changesOf returns a list of changes.
func changesOf(r *reading) list[change] {
	return list[change]{
		name: "Changes", id: func(c change) string { return fmt.Sprint(c.number) }, standard: "-time", empty: "No GPU has changed its health.",
		columns: []column[change]{
			{"Time", by(func(c change) int { return c.number }), func(c change) markup.Part {
				return markup.E("time", markup.Attr("datetime", c.at.UTC().Format(time.RFC3339)), markup.Text(clock(c.at)))
			}},
			{"GPU", by(func(c change) string { return c.node + "/" + c.gpu }), func(c change) markup.Part {
				return markup.Parts{deviceLink(r, c.node, c.gpu), markup.Text(" of "), nodeLink(r, c.node)}
			}},
			{"From", by(func(c change) string { return c.from }), func(c change) markup.Part { return healthText(c.from) }},
			{"To", by(func(c change) string { return c.to }), func(c change) markup.Part { return healthText(c.to) }},
		},
	}
}

// healthText returns a health of the history as a badge.
func healthText(text string) markup.Part {
	state := rows.HealthTainted
	switch {
	case text == healthOK:
		state = rows.HealthOK
	case strings.HasPrefix(text, notPublished), strings.HasPrefix(text, string(rows.HealthUnknown)):
		state = rows.HealthUnknown
	}
	return markup.E("span", markup.Attr("class", healthClass(state)), breakable(signOf(state)+text))
}
