// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
)

// exitStatus is a result of a command besides success and errors. It is not printed.
type exitStatus int

// Error implements error.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// statusOf returns the exit status for an outcome; nil for 0.
func statusOf(outcome gpurows.Outcome) error {
	switch outcome {
	case gpurows.OutcomeWaits:
		return exitStatus(2)
	case gpurows.OutcomeFault:
		return exitStatus(3)
	case gpurows.OutcomeFailed:
		return exitStatus(4)
	case gpurows.OutcomeUnknown:
		return exitStatus(5)
	case gpurows.OutcomeWell:
		return nil
	default:
		return nil
	}
}

// readForExplain reads the cluster for an explanation. Only the claims of the namespace are
// required. The explanation itself has a sentence about the rights that the user lacks.
func (o *options) readForExplain(ctx context.Context) (*view, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	objects, refused, err := readObjects(ctx, r.client, r.namespace, doctor.Claims)
	if err != nil {
		return nil, err
	}
	return &view{Cluster: gpurows.New(objects, r.driver, refused), reader: r}, nil
}

// usePatience bounds the query of an agent for the use of devices, which is not required.
const usePatience = 5 * time.Second

// sources returns the readers of an explanation's further facts. Each reads once.
func (o *options) sources(v *view) gpurows.Sources {
	var driver *doctor.Cluster
	read := func(ctx context.Context) (*doctor.Cluster, error) {
		if driver != nil {
			return driver, nil
		}
		c := &doctor.Cluster{Driver: o.driver, Unread: map[doctor.List]string{}}
		for _, read := range []readFunc{readPolicies, o.readDriver} {
			if err := read(ctx, v.client, c); err != nil {
				return nil, err
			}
		}
		driver = c
		return c, nil
	}
	return gpurows.Sources{
		Warnings: v.Warnings,
		Driver: func(ctx context.Context, node string) (gpurows.DriverPods, error) {
			c, err := read(ctx)
			if err != nil {
				return gpurows.DriverPods{}, err
			}
			on := func(pods []*corev1.Pod) []*corev1.Pod {
				return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName != node })
			}
			found := gpurows.DriverPods{Agents: on(c.Agents), Supervisors: on(c.Supervisors), Unread: c.Unread[doctor.DriverPods]}
			if len(c.DaemonSets) > 0 {
				found.Namespace = c.DaemonSets[0].Namespace
			} else if found.Unread == "" {
				found.Unread = fmt.Sprintf("no DaemonSet of the driver %s is found; --driver-namespace names its namespace", o.driver)
			}
			return found, nil
		},
		Uses: func(ctx context.Context, node string) gpurows.Uses {
			c, err := read(ctx)
			if err != nil || c.Unread[doctor.DriverPods] != "" {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, usePatience)
			defer cancel()
			return usesOf(ctx, v, c, node)
		},
		Repairs: func(ctx context.Context) bool {
			// An administrator of nodes repairs GPUs.
			review, err := v.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}},
			}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		},
		Profiles: profilesOf,
	}
}

// profilesOf returns the MIG profiles of a product, from the models of the simulator.
func profilesOf(product string) []string {
	for _, name := range modelNames() {
		text, err := models.ReadFile(path.Join("models", name+".json"))
		if err != nil {
			continue
		}
		var hardware gpu.Node
		if json.Unmarshal(text, &hardware) != nil {
			continue
		}
		for _, g := range hardware.GPUs {
			if g.ProductName != product || !g.MIG.Capable {
				continue
			}
			var profiles []string
			for _, p := range g.MIG.Profiles {
				profiles = append(profiles, p.Profile.String())
			}
			return profiles
		}
	}
	return nil
}

// usesOf returns the report of a node's agent. It returns nil if the agent does not answer or
// the user may not read it.
func usesOf(ctx context.Context, v *view, c *doctor.Cluster, node string) gpurows.Uses {
	answers, err := queryAgents[agentv1.Report](ctx, v.client, c, []string{node}, agentv1.PathClaims)
	if err != nil || answers[node].err != nil || answers[node].value == nil {
		return nil
	}
	return gpurows.Uses{node: *answers[node].value}
}
