// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// HandleError implements [kubeletplugin.DRAPlugin]. What concerns publishing is
// tried again and told to those who know what is published; a server that broke
// down ends the process.
func (p *Plugin) HandleError(ctx context.Context, err error, msg string) {
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.fatal(fmt.Errorf("%s: %w", msg, err))
		return
	}
	p.metrics.publishErrors.WithLabelValues(publishReason(err)).Inc()
	p.publishError(ctx, err, msg)
}

// publishReason gives the API server's word for an error, such as "Forbidden",
// "DroppedFields" for fields that the cluster does not know, or "Other".
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
