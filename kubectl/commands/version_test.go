// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/version"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestVersion(t *testing.T) {
	if out, problems := run(t, server(shared(t)), "--version"); out+problems != "kubectl gpu version "+version.Get().GitVersion+"\n" {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestAnAPIServerThatCannotBeReached(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + address})
	require.NoError(t, err)
	for _, args := range [][]string{{}, {"who"}, {"free"}, {"explain", "pod"}, {"topo", "a"}} {
		_, got, status := runBy(t, kubeconfig(t), to(client), args...)
		if status != 1 || !strings.HasPrefix(got, "Error: cannot reach the API server at "+address+": dial tcp") || !strings.HasSuffix(got, "connection refused; check --context and the network\n") {
			t.Errorf("%v: %d, %s", args, status, got)
		}
	}
}

func TestOneSentenceWithoutAClusterOrCredentials(t *testing.T) {
	denied := fake.NewClientset()
	denied.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewUnauthorized("Unauthorized")
	})
	for want, tc := range map[string]struct {
		kubeconfig string
		connect    connectFunc
	}{
		"Error: no cluster is configured: set KUBECONFIG, or name a file with --kubeconfig\n": {filepath.Join(t.TempDir(), "none"), connect},
		"Error: the API server does not accept your credentials: log in again, and check --context and --user\n": {
			kubeconfig(t), to(denied),
		},
	} {
		for _, args := range [][]string{{}, {"who"}, {"explain", "pod"}, {"doctor"}} {
			if _, problems, status := runBy(t, tc.kubeconfig, tc.connect, args...); status != 1 || problems != want {
				t.Errorf("%v: %d, got %q, want %q", args, status, problems, want)
			}
		}
	}
}

func TestEachCommandHasAnExample(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := New(streams)
	for _, cmd := range append(root.Commands(), root) {
		if !strings.Contains(cmd.Example, "  kubectl gpu") {
			t.Errorf("%s has the example %q", cmd.CommandPath(), cmd.Example)
		}
	}
}
