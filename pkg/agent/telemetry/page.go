// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"k8s.io/klog/v2"
)

// Page returns a handler that writes the result of load as a JSON object. It makes one call
// at a time, so users together cannot exceed that.
func Page[T any](load func(context.Context) T) http.Handler {
	var one sync.Mutex
	serially := func(ctx context.Context) T {
		one.Lock()
		defer one.Unlock()
		return load(ctx)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(serially(r.Context())); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Cannot write JSON to a client", "path", r.URL.Path, "err", err)
		}
	})
}
