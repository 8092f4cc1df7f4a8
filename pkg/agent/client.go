// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

// newClient returns a client for the API server: with a kubeconfig file, or, if that
// is empty, as the service account of the pod. It sends nothing.
func (c *Config) newClient() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if c.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster (a pod's service account, or --kubeconfig): %w", err)
	}
	// By default, client-go lets a client send five requests a second.
	// Every claim is read once before it is prepared, so a node that starts
	// eight pods would make the last ones wait for a second. The API server
	// protects itself, by priority and fairness.
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "gpu-kubelet-plugin/" + version.Get().GitVersion
	return kubernetes.NewForConfig(config)
}
