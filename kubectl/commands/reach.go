// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// unreachable replaces the error of requests without an answer by one sentence. It does the same
// for a missing configuration and for refused credentials. Commands send several requests at a
// time, which all fail in the same way.
func unreachable(err error) error {
	switch {
	case clientcmd.IsEmptyConfig(err):
		return errors.New("no cluster is configured: set KUBECONFIG, or name a file with --kubeconfig")
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not accept your credentials: log in again, and check --context and --user")
	}
	var request *url.Error
	if !errors.As(err, &request) || errors.Is(err, context.Canceled) {
		return err
	}
	host := request.URL
	if address, parseErr := url.Parse(request.URL); parseErr == nil && address.Host != "" {
		host = address.Host
	}
	return fmt.Errorf("cannot reach the API server at %s: %w; check --context and the network", host, request.Err)
}
