// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/tools/clientcmd"
)

// requestCounter is a proxy of the API server that counts requests and the bytes of their
// answers.
type requestCounter struct {
	*http.Server
	kubeconfig string
	requests   atomic.Int64
	bytes      atomic.Int64
}

// countRequests starts a proxy of the API server of a kubeconfig.
func countRequests(ctx context.Context, kubeconfig string) (*requestCounter, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &requestCounter{kubeconfig: filepath.Join(filepath.Dir(kubeconfig), "counted")}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			// A client sends its token over TLS only.
			r.Out.Header.Set("Authorization", "Bearer "+config.BearerToken)
		},
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true, //nolint:gosec // of this process
			ForceAttemptHTTP2: true,
		},
	}
	c.Server = &http.Server{ReadHeaderTimeout: commandTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("watch") == "" { // they last as long as the program
			c.requests.Add(1)
		}
		proxy.ServeHTTP(&countedWriter{w, c}, q)
	})}
	go func() { _ = c.Serve(listener) }() // Close ends it
	return c, writeKubeconfig(kubeconfig, c.kubeconfig, "http://"+listener.Addr().String())
}

func (c *requestCounter) reset() {
	c.requests.Store(0)
	c.bytes.Store(0)
}

func (c *requestCounter) read() (requests int, bytes int64) {
	return int(c.requests.Load()), c.bytes.Load()
}

type countedWriter struct {
	http.ResponseWriter
	counter *requestCounter
}

// Write implements [http.ResponseWriter].
func (w *countedWriter) Write(text []byte) (int, error) {
	w.counter.bytes.Add(int64(len(text)))
	return w.ResponseWriter.Write(text)
}

// Unwrap is for [http.ResponseController], which flushes.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveAgents serves the answers of all agents at an address to which the API server forwards
// requests. It refuses loopback addresses.
func serveAgents(ctx context.Context) (*http.Server, *fleetInUse, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, nil, err
	}
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.To4() == nil || !network.IP.IsGlobalUnicast() {
			continue
		}
		var listening net.ListenConfig
		listener, err := listening.Listen(ctx, "tcp", net.JoinHostPort(network.IP.String(), "0"))
		if err != nil {
			return nil, nil, err
		}
		port := listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of the network tcp
		server := &http.Server{ReadHeaderTimeout: commandTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "{}") //nolint:errcheck // the command reports it
		})}
		go func() { _ = server.Serve(listener) }()                                            // Close ends it
		return server, &fleetInUse{agentIP: network.IP.String(), agentPort: int32(port)}, nil //nolint:gosec // a port
	}
	return nil, nil, errors.Join(os.ErrNotExist, errors.New("this machine has no IPv4 address besides the loopback interface"))
}
