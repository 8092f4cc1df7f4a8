// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync/atomic"

	"github.com/gpu-dra/gpu-dra-driver/pkg/plugin"
)

// served is the plugin that serves the kubelet. There is none until claims of an
// earlier process are recovered.
type served struct {
	plugin atomic.Pointer[plugin.Plugin]
	begun  chan struct{} // closed once there is a plugin
}

func newServed() *served { return &served{begun: make(chan struct{})} }

// begin records the plugin. It is called once.
func (s *served) begin(p *plugin.Plugin) {
	s.plugin.Store(p)
	close(s.begun)
}

// now returns the plugin; nil if the kubelet is not served yet.
func (s *served) now() *plugin.Plugin { return s.plugin.Load() }
