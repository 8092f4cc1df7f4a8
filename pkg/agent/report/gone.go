// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// genericNotFound is the beginning of the message of a 404 about a path instead of an
// object. An API server sends it for resources that it does not serve, and client-go
// uses it if the body is not a Status.
const genericNotFound = "the server could not find the requested resource"

// IsGone reports whether err is a Status of the API server about a missing claim of
// this name. [apierrors.IsNotFound] and the details are not sufficient: any program
// between the agent and the API server can answer 404, and client-go then fills in the
// group, resource and name of the request.
func IsGone(err error, name string) bool {
	var sent apierrors.APIStatus
	if !errors.As(err, &sent) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	status := sent.Status()
	about := status.Details
	return status.Reason == metav1.StatusReasonNotFound &&
		about != nil && about.Group == resourceapi.GroupName && about.Kind == "resourceclaims" && about.Name == name &&
		!strings.HasPrefix(status.Message, genericNotFound)
}
