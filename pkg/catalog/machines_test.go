// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// machines are the simulated nodes that tests only read, by model. Each has two
// thousand files, so the tests share it.
var machines = simulations{made: map[string]*nvmlsim.Sim{}}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "catalog")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	machines.folder = folder
	code := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

type simulations struct {
	folder string
	mu     sync.Mutex
	made   map[string]*nvmlsim.Sim
}

func (s *simulations) get(t testing.TB, model string) *nvmlsim.Sim {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if sim, made := s.made[model]; made {
		return sim
	}
	sim, err := nvmlsim.Create(filepath.Join(s.folder, fmt.Sprint(len(s.made))), loadModel(t, model))
	must(t, err)
	s.made[model] = sim
	return sim
}
