// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"k8s.io/klog/v2"
)

// Page returns a handler that writes the result of load as a JSON object.
func Page[T any](load func(context.Context) T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(load(r.Context())); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Cannot write JSON to a client", "path", r.URL.Path, "err", err)
		}
	})
}

// Serially returns a function that calls load, one call at a time. Users together cannot
// exceed that.
func Serially[T any](load func(context.Context) T) func(context.Context) T {
	var one sync.Mutex
	return func(ctx context.Context) T {
		one.Lock()
		defer one.Unlock()
		return load(ctx)
	}
}
