// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
)

// A user without the right to create tokens may read the agent's metrics.
func TestDoctorReadsOfAMetricThatALabelIsNotFollowed(t *testing.T) {
	for value, want := range map[string]string{
		"1": "problem config-not-followed node a the metric gpu_dra_node_config_problem of the agent is 1", "0": "problems: 0",
	} {
		client := driven(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/agent-1:9000/proxy/metrics") || r.Header.Get(agentv1.TokenHeader) != "" {
				t.Errorf("requested %s with %v", r.URL.Path, r.Header)
			}
			_, _ = w.Write([]byte("# HELP gpu_dra_node_config_problem 1 if …\ngpu_dra_node_config_problem " + value + "\n"))
		})
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, "viewer", nil)
		})
		out, problems := run(t, client, "doctor")
		if out = strings.Join(strings.Fields(out), " "); !strings.Contains(out, want) || (problems != "") != (value == "1") {
			t.Errorf("%s: want %q, got %s%s", value, want, out, problems)
		}
	}
}
