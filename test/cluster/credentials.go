// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/pki"
)

// credentials maps file names below the state directory to their contents.
type credentials map[string][]byte

// newCredentials makes everything that proves an identity in the cluster.
func newCredentials(l Layout, n network, now time.Time) (credentials, error) {
	authority, err := pki.NewAuthority("gpu-dra-"+l.Name, now)
	if err != nil {
		return nil, err
	}
	files := credentials{l.pki("ca.crt"): authority.CertPEM}
	addPair := func(name string, pair pki.Pair, err error) error {
		files[l.pki(name+".crt")], files[l.pki(name+".key")] = pair.CertPEM, pair.KeyPEM
		return err
	}

	pair, err := authority.Server("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", apiserverClusterIP, n.Node.String())
	if err := addPair("apiserver", pair, err); err != nil {
		return nil, err
	}
	pair, err = authority.Server(l.NodeName(), n.Node.String())
	if err := addPair("kubelet", pair, err); err != nil {
		return nil, err
	}
	// Without it the API server could not fetch logs or open an exec.
	pair, err = authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err := addPair("apiserver-kubelet-client", pair, err); err != nil {
		return nil, err
	}
	pair, err = authority.Client(frontProxyUser)
	if err := addPair("front-proxy-client", pair, err); err != nil {
		return nil, err
	}
	pair, err = pki.SigningKey()
	if err := addPair("service-account", pair, err); err != nil {
		return nil, err
	}

	for _, client := range []struct {
		file, user string
		groups     []string
	}{
		{l.Kubeconfig(), "kubernetes-admin", []string{"system:masters"}},
		{l.kubeconfigOf(kubeControllerManager), "system:kube-controller-manager", nil},
		{l.kubeconfigOf(kubeScheduler), "system:kube-scheduler", nil},
		{l.kubeconfigOf(kubeProxy), "system:kube-proxy", nil},
		{l.kubeconfigOf(kubelet), "system:node:" + l.NodeName(), []string{"system:nodes"}},
	} {
		pair, err := authority.Client(client.user, client.groups...)
		if err != nil {
			return nil, err
		}
		if files[client.file], err = pki.Kubeconfig("gpu-dra-"+l.Name, n.apiserverURL(), authority, client.user, pair); err != nil {
			return nil, err
		}
	}
	return files, nil
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
