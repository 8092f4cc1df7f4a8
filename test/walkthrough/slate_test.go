// SPDX-License-Identifier: Apache-2.0

package walkthrough

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

const (
	// Cluster-wide kinds that documents create.
	clusterWide = "namespaces,deviceclasses,devicetaintrules,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings"
	// Kinds that they create in the namespace default.
	namespaced = "deployments,statefulsets,daemonsets,jobs,pods,resourceclaims,resourceclaimtemplates"
)

// slate is the state of a cluster before the commands of a document run.
type slate struct {
	cluster *harness.Cluster
	objects map[string]bool // by the name that kubectl prints
	labels  map[string]string
}

func newSlate(ctx context.Context, c *harness.Cluster) (*slate, error) {
	s := &slate{cluster: c, objects: map[string]bool{}}
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s.objects[name] = true
	}
	node, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	s.labels = node.Labels
	return s, nil
}

func (s *slate) names(ctx context.Context) ([]string, error) {
	out, err := s.cluster.Kubectl(ctx, "get", clusterWide, "--output", "name")
	return strings.Fields(out), err
}

// wipe removes the objects that the commands of a document have left. The driver is
// removed after the pods that use GPUs, which cannot end without it.
func (s *slate) wipe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	names, err := s.names(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(names, func(name string) bool { return s.objects[name] })
	users := slices.DeleteFunc(slices.Clone(left), func(name string) bool {
		return !strings.HasPrefix(name, "namespace/") || name == "namespace/"+harness.Namespace
	})
	if err := s.remove(ctx, users...); err != nil {
		return err
	}
	if _, err := s.cluster.Kubectl(ctx, "delete", "--namespace", "default", "--all", namespaced); err != nil {
		return err
	}
	if err := s.cluster.Uninstall(ctx); err != nil {
		return err
	}
	if err := s.remove(ctx, left...); err != nil {
		return err
	}
	// The kubelet would do it half a minute later.
	if _, err := s.cluster.Kubectl(ctx, "delete", "resourceslices", "--all"); err != nil {
		return err
	}
	return s.resetNode(ctx)
}

func (s *slate) remove(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := s.cluster.Kubectl(ctx, append([]string{"delete", "--ignore-not-found"}, names...)...)
	return err
}

func (s *slate) resetNode(ctx context.Context) error {
	node, err := s.cluster.Client.CoreV1().Nodes().Get(ctx, s.cluster.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		if _, was := s.labels[key]; was {
			continue
		}
		if _, err := s.cluster.Kubectl(ctx, "label", "node", s.cluster.NodeName, key+"-"); err != nil {
			return err
		}
	}
	_, err = s.cluster.Kubectl(ctx, "uncordon", s.cluster.NodeName)
	return err
}
