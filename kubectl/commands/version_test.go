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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

func TestVersion(t *testing.T) {
	if out, problems := run(t, server(shared(t)), "--version"); out+problems != "kubectl gpu version "+version.Get().GitVersion+"\n" {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestAnAPIServerThatCannotBeReached(t *testing.T) {
	t.Setenv("KUBECONFIG", kubeconfig(t))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + address})
	must(t, err)
	for _, args := range [][]string{{}, {"who"}, {"free"}, {"explain", "pod"}, {"topo", "a"}} {
		streams, _, _, stderr := genericiooptions.NewTestIOStreams()
		cmd := newCommand(streams, func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil })
		cmd.SetArgs(args)
		status := execute(t.Context(), cmd, streams)
		got := stderr.String()
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
			kubeconfig(t), func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return denied, nil },
		},
	} {
		t.Setenv("KUBECONFIG", tc.kubeconfig)
		for _, args := range [][]string{{}, {"who"}, {"explain", "pod"}, {"doctor"}} {
			streams, _, _, stderr := genericiooptions.NewTestIOStreams()
			cmd := newCommand(streams, tc.connect)
			cmd.SetArgs(args)
			if status := execute(t.Context(), cmd, streams); status != 1 || stderr.String() != want {
				t.Errorf("%v: %d, got %q, want %q", args, status, stderr, want)
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
