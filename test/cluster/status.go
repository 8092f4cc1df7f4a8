// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// ComponentStatus is one daemon of a cluster.
type ComponentStatus struct {
	Name string `json:"name"`
	// PID is 0 if the component was never started.
	PID     int    `json:"pid,omitempty"`
	Running bool   `json:"running"`
	Log     string `json:"log"`
}

// Status is the state of a cluster. Info is nil if it is not up.
type Status struct {
	*Info
	Healthy bool `json:"healthy"`
	// Problem is the reason why the cluster is not healthy.
	Problem    string            `json:"problem,omitempty"`
	Components []ComponentStatus `json:"components"`
}

// GetStatus returns the status of a cluster. It does not change the cluster.
func GetStatus(ctx context.Context, l Layout) Status {
	var status Status
	for _, name := range l.components() {
		component := ComponentStatus{Name: name, Log: l.logFile(name)}
		if record, err := process.Read(l.processesDir(), name); err == nil {
			component.PID, component.Running = record.PID, record.Alive()
		}
		status.Components = append(status.Components, component)
	}
	info, err := ReadInfo(l)
	if err == nil {
		status.Info = &info
		err = healthy(ctx, l, info, time.Time{})
	}
	status.Healthy = err == nil
	if err != nil {
		status.Problem = err.Error()
	}
	return status
}

// healthy returns nil if the cluster is healthy, and otherwise the problem. It
// ignores older reports of the kubelet.
func healthy(ctx context.Context, l Layout, info Info, since time.Time) error {
	if err := running(l, l.components()...); err != nil {
		return err
	}
	client, err := newClient(l)
	if err != nil {
		return err
	}
	if err := apiserverReady(ctx, client); err != nil {
		return err
	}
	if err := kubeletHealthy(ctx, info.NodeIP); err != nil {
		return err
	}
	return nodeReady(ctx, client, info.NodeName, since)
}

// running returns an error if one of the components was started and has ended. The
// error is for the first of them, with the end of its log.
func running(l Layout, components ...string) error {
	for _, name := range components {
		record, err := process.Read(l.processesDir(), name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was not started", name)
		}
		if err != nil {
			return err
		}
		if !record.Alive() {
			return fmt.Errorf("%s has ended; the end of %s:\n%s", name, record.Log, process.Tail(record.Log, 15))
		}
	}
	return nil
}

func newClient(l Layout) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("client of cluster %s: %w", l.Name, err)
	}
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of cluster %s: %w", l.Name, err)
	}
	return client, nil
}

func apiserverReady(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("kube-apiserver is not ready: %w", err)
	}
	return nil
}

func kubeletHealthy(ctx context.Context, nodeIP string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/healthz", nodeIP, kubeletHealthPort), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("kubelet is not healthy: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only the status is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet is not healthy: %s", response.Status)
	}
	return nil
}

// nodeReady returns an error until the node is ready, as its kubelet has reported since
// the time. An older report may be that of an earlier kubelet.
func nodeReady(ctx context.Context, client kubernetes.Interface, name string, since time.Time) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("node %s is not ready: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && !condition.LastHeartbeatTime.Time.Before(since) {
			if condition.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("node %s is not ready: %s", name, condition.Message)
		}
	}
	return fmt.Errorf("node %s is not ready: it has not reported yet", name)
}

// serviceAccountExists: a pod cannot be created before its service account.
func serviceAccountExists(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("namespace default has no service account yet: %w", err)
	}
	return nil
}
