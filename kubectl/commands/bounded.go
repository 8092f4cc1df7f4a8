// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// mostAnswerBytes is far above the answer of an agent with a hundred claims.
const mostAnswerBytes = 4 << 20

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
	transport := &bounded{RoundTripper: limited.Transport}
	limited.Transport = transport
	server := *address
	server.Path, server.RawPath = "", ""
	requests, err := rest.NewRESTClient(&server, "", rest.ClientContentConfig{GroupVersion: corev1.SchemeGroupVersion}, nil, &limited)
	if err != nil {
		return nil, err
	}
	answer, err := requests.Get().AbsPath(address.Path).SetHeader(header, value).MaxRetries(2).DoRaw(ctx)
	// The client drops the error of a body of a refusal.
	if transport.exceeded.Load() {
		return nil, fmt.Errorf("%w: the answer is longer than %d bytes", gpu.ErrInvalid, mostAnswerBytes)
	}
	return answer, err
}

// bounded limits the body of each answer. The client reads bodies as a whole, also those of
// refusals.
type bounded struct {
	http.RoundTripper
	// exceeded is true after an answer that was too long.
	exceeded atomic.Bool
}

// RoundTrip implements [http.RoundTripper].
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{ReadCloser: answer.Body, left: mostAnswerBytes, exceeded: &b.exceeded}
	}
	return answer, err
}

// boundedBody ends with an error if it has more than left bytes.
type boundedBody struct {
	io.ReadCloser
	left     int
	exceeded *atomic.Bool
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	// One byte more shows that the body is too long.
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		b.exceeded.Store(true)
		return b.left, io.ErrShortBuffer
	}
	b.left -= n
	return n, err
}
