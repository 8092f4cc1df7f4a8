// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// HandleError implements [kubeletplugin.DRAPlugin]. Upstream retries recoverable errors,
// which are errors of publishing; HandleError counts them and passes them to
// [Options].PublishError. Any other error is fatal.
func (p *Plugin) HandleError(ctx context.Context, err error, msg string) {
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.Fatal(fmt.Errorf("%s: %w", msg, err))
		return
	}
	p.Observer.PublishFailed(publishReason(err))
	p.PublishError(ctx, err, msg)
}

// publishReason returns the API server's reason for an error, such as "Forbidden". It
// returns "DroppedFields" if the cluster does not support a field, and "Other" if the
// reason is unknown.
func publishReason(err error) string {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		return "DroppedFields"
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "Other"
}
