// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// unreachable replaces the error of requests that had no answer by one sentence. Commands send
// several requests at a time, which all fail in the same way.
func unreachable(err error) error {
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
