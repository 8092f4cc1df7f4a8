// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// live sends news to the open pages. A page has a stream for it while it is visible.
type live struct {
	mu sync.Mutex
	// streams is the number of open pages.
	streams int
	// watched is true while the cluster reports changes by itself.
	watched bool
	// news is closed when pages should be read again.
	news chan struct{}
	// opened has an item after the first page has opened, or the last one has closed.
	opened chan struct{}
}

const (
	// mostStreams bounds the open pages. Further ones refresh by themselves.
	mostStreams = 64
	// streamBeat is the time between comments in a stream, so that broken ones end.
	streamBeat = 20 * time.Second
	// streamTimeout bounds a write to a stream.
	streamTimeout = 10 * time.Second
	// idleInterval is the time between readings while no page is open.
	idleInterval = time.Minute
	// linger is the time for which the cluster is still watched after the last page: the
	// user may be on the way to another one.
	linger = 10 * time.Second
	// slowdown is the time between readings of a watched cluster, as a multiple of the
	// refresh. They renew ages and the use.
	slowdown = 6
)

func newLive() *live { return &live{news: make(chan struct{}), opened: make(chan struct{}, 1)} }

// enter counts a stream. It reports false if there are too many.
func (l *live) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams == mostStreams {
		return false
	}
	l.streams++
	l.signal(l.streams == 1)
	return true
}

func (l *live) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams--
	l.signal(l.streams == 0)
}

func (l *live) signal(changed bool) {
	if !changed {
		return
	}
	select {
	case l.opened <- struct{}{}:
	default: // follow has not seen the last one yet
	}
}

// tell wakes the streams.
func (l *live) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.news)
	l.news = make(chan struct{})
}

func (l *live) setWatched(watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = watched
}

// state returns the number of streams, whether the cluster is watched, and the news.
func (l *live) state() (streams int, watched bool, news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams, l.watched, l.news
}

// follow reads the cluster when it changes, and every now and then, until ctx ends. It watches
// the cluster while a page is open.
func (s *Site) follow(ctx context.Context) {
	changed := make(chan struct{}, 1)
	stop := func() {}
	defer func() { stop() }()
	watching, left := false, time.Time{}
	s.readings.request()
	for ctx.Err() == nil {
		streams, watched, _ := s.live.state()
		wait := s.interval(streams, watched)
		switch {
		case streams > 0:
			left = time.Time{}
			if !watching {
				stop, watching = s.watch(ctx, changed), true
			}
		case watching && left.IsZero():
			left = time.Now()
			fallthrough
		case watching:
			if wait = time.Until(left.Add(linger)); wait <= 0 {
				stop()
				stop, watching = func() {}, false
				continue
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.live.opened:
		case <-changed:
			s.readings.renew(ctx)
			s.live.tell()
		case <-timer.C:
			if streams > 0 || !watching {
				s.readings.renew(ctx)
				s.live.tell()
			}
		}
		timer.Stop()
	}
}

// interval returns the time until the next reading of a cluster that does not change.
func (s *Site) interval(streams int, watched bool) time.Duration {
	switch {
	case streams == 0:
		return max(idleInterval, s.refresh)
	case watched:
		return slowdown * s.refresh
	default:
		return s.refresh
	}
}

// watch watches the cluster, and fills changed after changes. The returned function ends it.
func (s *Site) watch(ctx context.Context, changed chan<- struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		_ = s.source.Watch(ctx, func() { // without a watch, pages refresh
			s.live.setWatched(true)
			select {
			case changed <- struct{}{}:
			default: // a reading begins soon
			}
		})
		s.live.setWatched(false)
	})
	return func() { cancel(); running.Wait() }
}

// stream writes an event each time that the pages should be read again, until the browser
// leaves. Its data is "watch", or "refresh" if the cluster is only read every now and then.
func (s *Site) stream(w http.ResponseWriter, q *http.Request) {
	if !s.live.enter() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.live.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	connection := http.NewResponseController(w)
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for text := ""; ; {
		_, watched, news := s.live.state()
		if text == "" {
			mode := "refresh"
			if watched {
				mode = "watch"
			}
			text = fmt.Sprintf("event: news\ndata: %s\n\n", mode)
		}
		_ = connection.SetWriteDeadline(time.Now().Add(streamTimeout)) // a recorder of a test has none
		if _, err := fmt.Fprint(w, text); err != nil || connection.Flush() != nil {
			return
		}
		select {
		case <-q.Context().Done():
			return
		case <-news:
			text = ""
		case <-beat.C:
			text = ":\n\n"
		}
	}
}
