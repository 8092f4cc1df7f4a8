// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/pki"
)

// credentials maps file names below the state directory to their contents.
type credentials map[string][]byte

func (c credentials) addPair(l Layout, name string, pair pki.Pair, err error) error {
	c[l.pki(name+".crt")], c[l.pki(name+".key")] = pair.CertPEM, pair.KeyPEM
	return err
}

func (c credentials) addClient(l Layout, n network, authority *pki.Authority, file, user string, groups ...string) error {
	pair, err := authority.Client(user, groups...)
	if err != nil {
		return err
	}
	c[file], err = pki.Kubeconfig("gpu-dra-"+l.first().Name, n.apiserverURL(), authority, user, pair)
	return err
}

// newCredentials makes everything that proves an identity of a node, and of the control plane with its
// authority if the node is the first.
func newCredentials(l Layout, n network, now time.Time) (credentials, error) {
	if l.isFirst() {
		return newAuthority(l, n, now)
	}
	var pair pki.Pair
	var err error
	if pair.CertPEM, err = os.ReadFile(l.first().pki("ca.crt")); err != nil {
		return nil, err
	}
	if pair.KeyPEM, err = os.ReadFile(l.first().pki("ca.key")); err != nil {
		return nil, err
	}
	authority, err := pki.LoadAuthority(pair, now)
	if err != nil {
		return nil, err
	}
	files := credentials{l.pki("ca.crt"): authority.CertPEM}
	return files, files.addNode(l, n, authority)
}

func (c credentials) addNode(l Layout, n network, authority *pki.Authority) error {
	pair, err := authority.Server(l.NodeName(), n.Node.String())
	return errors.Join(
		c.addPair(l, "kubelet", pair, err),
		c.addClient(l, n, authority, l.kubeconfigOf(kubeProxy), "system:kube-proxy"),
		c.addClient(l, n, authority, l.kubeconfigOf(kubelet), "system:node:"+l.NodeName(), "system:nodes"),
	)
}

func newAuthority(l Layout, n network, now time.Time) (credentials, error) {
	authority, err := pki.NewAuthority("gpu-dra-"+l.Name, now)
	if err != nil {
		return nil, err
	}
	files := credentials{}
	server, serverErr := authority.Server("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", apiserverClusterIP, n.Node.String())
	// Without it the API server could not fetch logs or open an exec.
	toKubelet, toKubeletErr := authority.Client("kube-apiserver-kubelet-client", "system:masters")
	proxy, proxyErr := authority.Client(frontProxyUser)
	signing, signingErr := pki.SigningKey()
	return files, errors.Join(
		files.addPair(l, "ca", authority.Pair, nil),
		files.addPair(l, "apiserver", server, serverErr),
		files.addPair(l, "apiserver-kubelet-client", toKubelet, toKubeletErr),
		files.addPair(l, "front-proxy-client", proxy, proxyErr),
		files.addPair(l, "service-account", signing, signingErr),
		files.addClient(l, n, authority, l.Kubeconfig(), "kubernetes-admin", "system:masters"),
		files.addClient(l, n, authority, l.kubeconfigOf(kubeControllerManager), "system:kube-controller-manager"),
		files.addClient(l, n, authority, l.kubeconfigOf(kubeScheduler), "system:kube-scheduler"),
		files.addNode(l, n, authority),
	)
}

func (l Layout) pki(file string) string { return filepath.Join(l.pkiDir(), file) }

// writeFiles writes each file for its owner only; most hold a private key.
func writeFiles(files map[string][]byte) error {
	for path, data := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if bytes.HasPrefix(data, []byte("#!")) {
			mode = 0o700
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}
