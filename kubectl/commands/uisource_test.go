// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// The pages know the agents, or say that the user may not.
func TestTheSourceReadsTheAgents(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	c, err := s.Read(t.Context())
	require.NoError(t, err)
	if len(c.Agents) == 0 || len(c.Sentences()) > 0 {
		t.Errorf("agents %+v, %q", c.Agents, c.Sentences())
	}
	forbid(client.Clientset, "daemonsets", false)
	c, err = s.Read(t.Context())
	require.NoError(t, err)
	if all := strings.Join(c.Sentences(), " "); c.Agents != nil || !strings.Contains(all, "daemonsets") || !strings.Contains(all, "Whether the agents run is not known") {
		t.Errorf("without the right: agents %+v, %q", c.Agents, all)
	}
}

// The findings name a missing agent, as those of doctor.
func TestTheFindingsOfThePagesWithoutAnAgent(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	for _, component := range []string{"agent", "supervisor"} {
		require.NoError(t, client.AppsV1().DaemonSets("gpus").Delete(t.Context(), daemonSet(component).Name, metav1.DeleteOptions{}))
		require.NoError(t, client.CoreV1().Pods("gpus").Delete(t.Context(), component+"-1", metav1.DeleteOptions{}))
	}
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	c, err := s.Read(t.Context())
	require.NoError(t, err)
	found, err := s.Inspect(t.Context(), c)
	require.NoError(t, err)
	if codes := fleet.Each(found.Findings, func(f doctor.Finding) string { return f.Code }); !slices.Contains(codes, "agent-missing") || len(c.Sentences()) != 1 {
		t.Errorf("got %v, %q", codes, c.Sentences())
	}
}

func TestTheSourceInspectsTheCluster(t *testing.T) {
	client := drivenWorld(t, shared(t), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/gpus/pods/agent-1:9000/proxy/v1/claims" {
			_, _ = w.Write([]byte(used))
			return
		}
		factsWithSwap("0")(w, r)
	})
	s := uiSource{reader{client, "default", v1alpha1.DriverName}, &options{driver: v1alpha1.DriverName}}
	c, err := s.Read(t.Context())
	require.NoError(t, err)
	found, err := s.Inspect(t.Context(), c)
	require.NoError(t, err)
	if len(found.Findings) < 10 || len(found.Uses["a"].Rows) != 4 || found.Problems != nil {
		t.Errorf("got %d findings, %+v, %q", len(found.Findings), found.Uses, found.Problems)
	}
	// Agents that do not answer are named.
	client = drivenWorld(t, shared(t), func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) })
	s.client = client
	if found, err = s.Inspect(t.Context(), c); err != nil || len(found.Uses) != 0 || len(found.Problems) != 1 {
		t.Errorf("got %+v, %v", found, err)
	}
}
