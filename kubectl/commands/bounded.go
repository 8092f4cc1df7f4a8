// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mostAnswerBytes is far above the answer of an agent with a hundred claims.
const mostAnswerBytes = 4 << 20

var errTooLong = fmt.Errorf("%w: the answer is longer than %d bytes", gpu.ErrInvalid, mostAnswerBytes)

// getBounded reads an address of the API server that another program answers, with one header
// more. The error wraps [gpu.ErrInvalid] if the answer is too long, whatever its status, or
// leads to another address: that one would get the header.
func getBounded(ctx context.Context, client kubernetes.Interface, address *url.URL, header, value string) ([]byte, error) {
	own, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok {
		return nil, fmt.Errorf("request %s: %w: the client has no HTTP client", address.Path, gpu.ErrNotSupported)
	}
	limited := http.Client{Transport: http.DefaultTransport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return fmt.Errorf("%w: the answer leads to another address", gpu.ErrInvalid)
	}}
	if own.Client != nil {
		limited.Transport, limited.Timeout = own.Client.Transport, own.Client.Timeout
	}
	limited.Transport = bounded{limited.Transport}
	server := *address
	server.Path, server.RawPath = "", ""
	requests, err := rest.NewRESTClient(&server, "", rest.ClientContentConfig{GroupVersion: corev1.SchemeGroupVersion}, nil, &limited)
	if err != nil {
		return nil, err
	}
	answer, err := requests.Get().AbsPath(address.Path).SetHeader(header, value).MaxRetries(2).DoRaw(ctx)
	if errors.Is(err, errTooLong) {
		return nil, errTooLong // without the address
	}
	return answer, err
}

// bounded reads the body of each answer, also of a refusal, up to the limit.
type bounded struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// One byte more shows that the body is too long.
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswerBytes+1))
	_ = answer.Body.Close() // it was read
	switch {
	case err != nil:
		return nil, err
	case len(body) > mostAnswerBytes:
		return nil, errTooLong
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}
