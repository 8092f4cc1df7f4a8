// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"k8s.io/klog/v2"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
)

// serveDevices writes the devices of the node as a JSON object.
func (a *agent) serveDevices(w http.ResponseWriter, r *http.Request) {
	devices, now := agentv1.Devices{}, a.state.Snapshot()
	for _, d := range a.controller.Devices() {
		devices[d.Name.String()] = now.Attributes(a.settings(), d.Name)
	}
	writeJSON(w, r, devices)
}

// page returns a handler that writes what load returns as a JSON object.
func page[T any](load func(context.Context) T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeJSON(w, r, load(r.Context())) })
}

// serially returns a function that calls load, one call at a time: users together cannot exceed
// that.
func serially[T any](load func(context.Context) T) func(context.Context) T {
	var one sync.Mutex
	return func(ctx context.Context) T {
		one.Lock()
		defer one.Unlock()
		return load(ctx)
	}
}

func writeJSON(w http.ResponseWriter, r *http.Request, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Cannot write JSON to a client", "path", r.URL.Path, "err", err)
	}
}
