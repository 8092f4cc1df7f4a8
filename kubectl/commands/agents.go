// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// tokenSeconds is the least that the API server admits.
	tokenSeconds = 600
	// agentPatience is the time for the answer of an agent. queriesAtOnce is the number of
	// agents that are queried at a time.
	agentPatience = 15 * time.Second
	queriesAtOnce = 16
)

// readFacts reads the facts of the nodes from their agents; of all nodes without names.
func readFacts(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster, nodes []string) {
	var err error
	if c.Facts, err = queryAgents[agentv1.Node](ctx, client, c, nodes, agentv1.PathNode); err != nil {
		c.Unread[doctor.AgentFacts] = err.Error()
	}
}

// proxyURL returns the address of a path of an agent at the API server.
func proxyURL(client kubernetes.Interface, agent *corev1.Pod, path string) *url.URL {
	return client.CoreV1().RESTClient().Get().Namespace(agent.Namespace).Resource("pods").
		Name(net.JoinHostPort(agent.Name, httpPort(agent))).SubResource("proxy").Suffix(path).URL()
}

// queryAgents reads a path of the agents of the nodes, and returns their answers by node.
// Without names it reads from all agents. The error wraps [gpu.ErrNotSupported] or
// [gpu.ErrPermission]; the answers then have only the named nodes without an agent.
func queryAgents[T any](ctx context.Context, client kubernetes.Interface, c *doctor.Cluster, nodes []string, path string) (map[string]doctor.Answer[T], error) {
	agents := slices.DeleteFunc(slices.Clone(c.Agents), func(p *corev1.Pod) bool {
		return len(nodes) > 0 && !slices.Contains(nodes, p.Spec.NodeName)
	})
	answers := map[string]doctor.Answer[T]{}
	for _, node := range nodes {
		if !slices.ContainsFunc(agents, func(p *corev1.Pod) bool { return p.Spec.NodeName == node }) {
			answers[node] = doctor.Answer[T]{Err: fmt.Errorf("%w: no agent runs on the node", gpu.ErrNotFound)}
		}
	}
	if len(agents) == 0 {
		return answers, nil
	}
	var mu sync.Mutex
	var queries errgroup.Group
	queries.SetLimit(queriesAtOnce)
	for _, agent := range agents {
		queries.Go(func() error {
			value, err := query[T](ctx, client, c, agent, path)
			mu.Lock()
			defer mu.Unlock()
			// In an update a node has two agents.
			if answers[agent.Spec.NodeName].Value == nil {
				answers[agent.Spec.NodeName] = doctor.Answer[T]{Value: value, Err: err}
			}
			return nil
		})
	}
	_ = queries.Wait() // the errors are among the answers
	return answers, withoutTokens(answers)
}

// tokenError is the error of a token that could not be created.
type tokenError struct{ error }

func (e tokenError) Unwrap() error { return e.error }

// withoutTokens removes the answers of agents for which no token could be created. It
// returns the error of one of them.
func withoutTokens[T any](answers map[string]doctor.Answer[T]) error {
	var lacking error
	for _, node := range slices.Sorted(maps.Keys(answers)) {
		if err := answers[node].Err; errors.As(err, new(tokenError)) {
			delete(answers, node)
			lacking = cmp.Or(lacking, err)
		}
	}
	return lacking
}

// viewerToken creates a token that one agent accepts. The account is the one in the DaemonSet
// of the agent's pod.
func viewerToken(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster, agent *corev1.Pod) (string, error) {
	set := setOf(c, agent)
	if set == nil || set.Spec.Template.Annotations[v1alpha1.AnnotationViewerAccount] == "" {
		return "", fmt.Errorf("query the agents: %w: viewers.enabled is not set in the chart, or it is of an older release", gpu.ErrNotSupported)
	}
	account := set.Spec.Template.Annotations[v1alpha1.AnnotationViewerAccount]
	request, err := client.CoreV1().ServiceAccounts(set.Namespace).CreateToken(ctx, account, &authv1.TokenRequest{
		Spec: authv1.TokenRequestSpec{Audiences: []string{agentv1.Audience(c.Driver, string(agent.UID))}, ExpirationSeconds: ptr.To(int64(tokenSeconds))},
	}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return "", fmt.Errorf("%w: you have no right to create serviceaccounts/token of %s in the namespace %s", gpu.ErrPermission, account, set.Namespace)
	}
	if err != nil {
		return "", fmt.Errorf("create a token of %s in the namespace %s: %w", account, set.Namespace, err)
	}
	return request.Status.Token, nil
}

// query reads a path of an agent through the API server.
func query[T any](ctx context.Context, client kubernetes.Interface, c *doctor.Cluster, agent *corev1.Pod, path string) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	token, err := viewerToken(ctx, client, c, agent)
	if err != nil {
		return nil, tokenError{err}
	}
	answer, err := getBounded(ctx, client, proxyURL(client, agent, path), agentv1.TokenHeader, token)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: you have no right to get pods/proxy in the namespace %s", gpu.ErrPermission, agent.Namespace)
	case err != nil:
		return nil, fmt.Errorf("agent %s: %w: %w", agent.Name, gpu.ErrNotReady, err)
	}
	value := new(T)
	if err := json.Unmarshal(answer, value); err != nil {
		return nil, fmt.Errorf("agent %s: %w: %w", agent.Name, gpu.ErrCorrupt, err)
	}
	return value, nil
}

// httpPort returns the port of the agent's HTTP endpoints.
func httpPort(agent *corev1.Pod) string {
	for _, container := range agent.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == "http" {
				return strconv.Itoa(int(port.ContainerPort))
			}
		}
	}
	return "8080"
}
