// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// genericNotFound starts the message of a 404 that is about a path and not about
// an object: an API server sends it for resources that it does not serve, and
// client-go writes it for a body that is no Status.
const genericNotFound = "the server could not find the requested resource"

// isGone reports whether err is the API server's word that it has no claim of
// this name. Any program between the agent and the API server can answer 404,
// and client-go fills in the group, resource and name of the request, so that
// [apierrors.IsNotFound] and the details prove nothing: isGone wants a Status
// that the server itself has sent, about this very object.
func isGone(err error, name string) bool {
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
