// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// watch sends changes until the request or the server ends. A change by which an object leaves the selection is a
// deletion for the client.
func (s *apiServer) watch(w http.ResponseWriter, req *http.Request, r request, selected func(object) bool) {
	// A request that ends wakes the loop below.
	stop := context.AfterFunc(req.Context(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder, flusher := json.NewEncoder(w), w.(http.Flusher)
	send := func(kind string, o object) bool {
		err := encoder.Encode(object{"type": kind, "object": o})
		flusher.Flush()
		return err == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, _ := strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	if req.URL.Query().Get("sendInitialEvents") == "true" || last == 0 {
		for _, o := range s.selected(r, selected) {
			if !send("ADDED", o) {
				return
			}
		}
		last = s.revision
		send("BOOKMARK", object{"kind": r.kind(), "apiVersion": r.apiVersion, "metadata": object{
			"resourceVersion": strconv.Itoa(last), "annotations": object{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	flusher.Flush()
	for req.Context().Err() == nil && !s.down {
		for _, e := range s.events[s.after(last):] {
			last = e.revision
			if e.resource != r.collection() || r.namespace != "" && text(metadata(e.object), "namespace") != r.namespace {
				continue
			}
			kind := e.kind
			if !selected(e.object) {
				kind = "DELETED"
			}
			s.mu.Unlock()
			ok := send(kind, e.object)
			s.mu.Lock()
			if !ok {
				return
			}
		}
		if s.after(last) == len(s.events) && req.Context().Err() == nil && !s.down {
			s.changed.Wait()
		}
	}
}

// after returns the index of the first event after a revision. Each revision has one event.
func (s *apiServer) after(revision int) int { return min(revision, len(s.events)) }

// selector returns what the label and field selectors of a request select.
func selector(req *http.Request) (func(object) bool, error) {
	byLabel, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(req.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	return func(o object) bool {
		set := labels.Set{}
		own, _ := metadata(o)["labels"].(object)
		for name, value := range own {
			set[name], _ = value.(string)
		}
		if !byLabel.Matches(set) {
			return false
		}
		for _, requirement := range byField.Requirements() {
			if (text(o, strings.Split(requirement.Field, ".")...) == requirement.Value) != (requirement.Operator != "!=") {
				return false
			}
		}
		return true
	}, nil
}
