// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func newAuthority(t *testing.T) (*Authority, *x509.CertPool) {
	t.Helper()
	a, err := NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.CertPEM) {
		t.Fatal("the authority's certificate is not PEM")
	}
	return a, pool
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

func TestAClientCertificateNamesUserAndGroups(t *testing.T) {
	a, pool := newAuthority(t)
	pair, err := a.Client("system:node:n", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, pair)
	if cert.Subject.CommonName != "system:node:n" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("subject %s", cert.Subject)
	}
	for usage, want := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
		if (err == nil) != want {
			t.Errorf("usage %v: %v", usage, err)
		}
	}
}

func TestAServingCertificateIsForItsHostsOnly(t *testing.T) {
	a, pool := newAuthority(t)
	pair, err := a.Server("kubernetes", "10.96.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, pair)
	for host, want := range map[string]bool{"kubernetes": true, "10.96.0.1": true, "10.96.0.2": false, "other": false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: host})
		if (err == nil) != want {
			t.Errorf("host %s: %v", host, err)
		}
	}
	if _, err := a.Server(); err == nil {
		t.Error("a certificate for no host was made")
	}
}

func TestCertificatesOfAnotherAuthorityAreRefused(t *testing.T) {
	a, _ := newAuthority(t)
	_, other := newAuthority(t)
	pair, err := a.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf(t, pair).Verify(x509.VerifyOptions{Roots: other, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("it was accepted")
	}
}

func TestAKubeconfigNeedsNoOtherFile(t *testing.T) {
	a, _ := newAuthority(t)
	pair, err := a.Client("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	data, err := Kubeconfig("c", "https://198.18.1.2:6443", a, "admin", pair)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://198.18.1.2:6443" || len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 {
		t.Errorf("got %+v", config)
	}
}
