// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Frontend is a load balancer in front of the cluster's API server, for an agent to
// use. It can lose its connection to the server: it then answers the agents'
// requests about claims with its own page.
type Frontend struct {
	server *httptest.Server
	lost   atomic.Bool
	pages  atomic.Int64
}

// claimsPath is part of the path of every request about ResourceClaims.
const claimsPath = "/apis/resource.k8s.io/"

// lostPage is what load balancers answer with 404 while no backend is there.
const lostPage = "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>"

// NewFrontend starts a load balancer at an address that pods reach. The caller
// closes it.
func (c *Cluster) NewFrontend() (*Frontend, error) {
	target, err := url.Parse(c.config.Host)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	// The cluster's CA only: the agent's own token is passed on.
	transport, err := rest.TransportFor(&rest.Config{Host: c.config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.config.CAData, CAFile: c.config.CAFile}})
	if err != nil {
		return nil, err
	}
	listener, err := c.ListenOnNode()
	if err != nil {
		return nil, fmt.Errorf("listen for the load balancer: %w", err)
	}
	f := &Frontend{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // watches
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
		},
	}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.lost.Load() && strings.HasPrefix(r.URL.Path, claimsPath) {
			f.pages.Add(1)
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, lostPage) // a client that left needs no page
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	_ = f.server.Listener.Close() // the one of the loopback interface, unused
	f.server.Listener = listener
	f.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	f.server.StartTLS()
	return f, nil
}

// ListenOnNode listens on a free port of the node: pods have no way to the host, only to their
// node.
func (c *Cluster) ListenOnNode() (net.Listener, error) {
	return listenIn(c.NetNS, net.JoinHostPort(c.NodeIP, "0"))
}

// ListenOnLoopback listens on an address of the node's loopback interface, which is not the
// host's. The container runtime needs no TLS for registries there.
func (c *Cluster) ListenOnLoopback(address string) (net.Listener, error) {
	return listenIn(c.NetNS, address)
}

// Close ends the load balancer and its connections.
func (f *Frontend) Close() {
	f.server.CloseClientConnections()
	f.server.Close()
}

// Lose makes every request about claims end in a 404 page; Find ends that.
func (f *Frontend) Lose() { f.lost.Store(true) }

// Find makes the API server reachable again.
func (f *Frontend) Find() { f.lost.Store(false) }

// Pages is the number of 404 pages that were sent.
func (f *Frontend) Pages() int64 { return f.pages.Load() }

// Kubeconfig writes a kubeconfig for an agent, and returns its path in the agent's container. With it, the
// agent reaches the API server through the load balancer, with the token of the
// agent's service account.
func (f *Frontend) Kubeconfig(a *Agent) (string, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	config := clientcmdapi.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "frontend",
		Clusters: []clientcmdapi.NamedCluster{{Name: "frontend", Cluster: clientcmdapi.Cluster{
			// A name in the certificate of package httptest.
			Server: f.server.URL, CertificateAuthorityData: authority, TLSServerName: "example.com",
		}}},
		AuthInfos: []clientcmdapi.NamedAuthInfo{{Name: "agent", AuthInfo: clientcmdapi.AuthInfo{
			TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token",
		}}},
		Contexts: []clientcmdapi.NamedContext{{Name: "frontend", Context: clientcmdapi.Context{Cluster: "frontend", AuthInfo: "agent"}}},
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	// The chart mounts this folder of the host below /host.
	path := filepath.Join(a.SimDir(), "frontend.kubeconfig")
	return filepath.Join("/host", path), os.WriteFile(path, text, 0o600)
}

// listenIn listens on a TCP address of another network namespace, to which the
// socket then belongs.
func listenIn(namespace, address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	results := make(chan result, 1)
	go func() {
		// The thread ends with this goroutine, so nothing else runs in the
		// namespace.
		runtime.LockOSThread()
		handle, err := os.Open(namespace)
		if err != nil {
			results <- result{nil, err}
			return
		}
		defer func() { _ = handle.Close() }() // it was only read
		if err := unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); err != nil {
			results <- result{nil, fmt.Errorf("enter network namespace %s: %w", namespace, err)}
			return
		}
		listener, err := net.Listen("tcp", address) //nolint:noctx // it returns at once
		results <- result{listener, err}
	}()
	r := <-results
	return r.listener, r.err
}
