// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

func TestVersion(t *testing.T) {
	client := drivenWorld(t, shared(t), func(http.ResponseWriter, *http.Request) {})
	pod, set := agentOf(t, client)
	pod, set = pod.DeepCopy(), set.DeepCopy()
	set.Labels["helm.sh/chart"] = "gpu-dra-driver-0.2.0"
	sets := podResource()
	sets.Group, sets.Resource = "apps", "daemonsets"
	must(t, client.Tracker().Update(sets, set, "gpus"))
	pod.Spec.Containers[0].Image = "registry.example:5000/gpu-kubelet-plugin:v0.2.0@sha256:abc"
	must(t, client.Tracker().Update(podResource(), pod, "gpus"))
	own := version.Get().GitVersion
	out, problems := run(t, client, "version")
	lines(t, out+problems, `
COMPONENT VERSION NAMESPACE PODS
client `+own+` - -
server v1.37.1 - -
chart 0.2.0 gpus -
agent v0.2.0 gpus 1
supervisor supervisor gpus 1`)
	if out, problems := run(t, server(shared(t)), "version", "--client", "-o", "name"); out+problems != "client/"+own+"\n" {
		t.Errorf("the client only: %s%s", out, problems)
	}
	if _, problems := run(t, server(shared(t)), "version"); !strings.Contains(problems, "--driver-namespace") {
		t.Errorf("without a driver: %s", problems)
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
	for _, args := range [][]string{{}, {"who"}, {"free"}, {"explain", "pod"}, {"topo", "a"}, {"version"}} {
		streams, _, _, stderr := genericiooptions.NewTestIOStreams()
		cmd := newCommand(streams, func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil }, false)
		cmd.SetArgs(args)
		status := execute(t.Context(), cmd, streams)
		got := stderr.String()
		if status != 1 || !strings.HasPrefix(got, "Error: cannot reach the API server at "+address+": dial tcp") || !strings.HasSuffix(got, "connection refused; check --context and the network\n") {
			t.Errorf("%v: %d, %s", args, status, got)
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
