// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// exitStatus is a result of a command besides success and errors. It is not printed.
type exitStatus int

// Error implements error.
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// statusOf returns the exit status for an outcome; nil for 0.
func statusOf(outcome rows.Outcome) error {
	status := map[rows.Outcome]exitStatus{rows.OutcomeWaits: 2, rows.OutcomeFault: 3, rows.OutcomeFailed: 4, rows.OutcomeUnknown: 5}[outcome]
	if status == 0 {
		return nil
	}
	return status
}

// readForExplain reads the cluster for an explanation. Only the claims of the namespace are
// required. The explanation itself has a sentence about the rights that the user lacks.
func (o *options) readForExplain(ctx context.Context) (*view, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	cluster, err := r.readWithClaims(ctx)
	return &view{Cluster: cluster, reader: r}, err
}

// usePatience bounds the query of an agent for the use of devices, which is not required.
const usePatience = 5 * time.Second

// evidence reads the facts of an explanation besides the objects of the cluster.
func (o *options) evidence(ctx context.Context, v *view, q rows.Question) (rows.Evidence, error) {
	all := rows.Evidence{Repairer: isRepairer(ctx, v)}
	pod, claim := v.Find(q)
	if claim != nil {
		err := o.addAgents(ctx, v)
		all.Driver = v.pods
		return all, err
	}
	if pod == nil {
		return all, nil
	}
	if err := all.SetWarnings(v.Warnings(ctx, pod)); err != nil {
		return all, err
	}
	if pod.Spec.NodeName == "" && !v.IsPartial() {
		var err error
		all.Budgets, err = readBudgets(ctx, v.client)
		all.BudgetsRead = err == nil
		if err != nil && !errors.Is(err, gpu.ErrPermission) {
			return all, err
		}
	}
	nodes := v.NodesOf(pod)
	if len(nodes) == 0 {
		return all, nil
	}
	if err := o.addAgents(ctx, v); err != nil {
		return all, err
	}
	all.Driver = v.pods
	if v.pods.Unread[doctor.DriverPods] != "" {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	// The use is not required.
	answers, _ := queryAgents[agentv1.Report](ctx, v.client, v.pods, nodes, agentv1.PathClaims)
	all.Uses = usesOf(answers, func(string, error) {})
	return all, nil
}

// isRepairer reports whether the user may change nodes, as an administrator who repairs GPUs.
func isRepairer(ctx context.Context, v *view) bool {
	review, err := v.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}
