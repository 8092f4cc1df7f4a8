// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// serveDevices writes the devices of the node as a JSON object: their attributes by
// their names, also the ones that are published only on request.
func (a *agent) serveDevices(w http.ResponseWriter, r *http.Request) {
	devices := map[string]kind.Attributes{}
	for _, d := range a.controller.Devices() {
		if name, err := kind.Parse(d.Name); err == nil {
			devices[d.Name] = a.controller.AttributesOf(name)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(devices); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Cannot write the devices to a client", "err", err)
	}
}
