// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"
)

// Page returns a handler that writes the result of load as a JSON object. It makes one call
// at a time, so users together cannot exceed that. A request that ends while it waits makes none.
func Page[T any](load func(context.Context) T) http.Handler {
	turn := make(chan struct{}, 1)
	serially := func(ctx context.Context) (loaded T, err error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			return load(ctx), nil
		case <-ctx.Done():
			return loaded, ctx.Err()
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		loaded, err := serially(r.Context())
		if err != nil {
			return // the request has ended
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(loaded); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Cannot write JSON to a client", "path", r.URL.Path, "err", err)
		}
	})
}
