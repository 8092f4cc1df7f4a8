// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const validity = 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
	// Pair has the certificate with which peers verify others.
	Pair
}

// Pair is a certificate and its private key, as PEM.
type Pair struct {
	CertPEM, KeyPEM []byte
}

// NewAuthority makes a self-signed authority, valid from an hour before now.
func NewAuthority(commonName string, now time.Time) (*Authority, error) {
	template, err := newTemplate(pkix.Name{CommonName: commonName}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", commonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", commonName, err)
	}
	private, err := privatePEM(key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", commonName, err)
	}
	return LoadAuthority(Pair{CertPEM: pemBlock("CERTIFICATE", der), KeyPEM: private}, now)
}

// LoadAuthority returns the authority of a pair that [NewAuthority] has made.
func LoadAuthority(pair Pair, now time.Time) (*Authority, error) {
	loaded, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	return &Authority{cert: loaded.Leaf, key: loaded.PrivateKey.(crypto.Signer), now: now, Pair: pair}, nil
}

// Client makes a client certificate for a Kubernetes user and its groups.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups}, a.now)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

// Server makes a serving certificate. Hosts are DNS names or IP addresses.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, fmt.Errorf("serving certificate: no host is named")
	}
	template, err := newTemplate(pkix.Name{CommonName: hosts[0]}, a.now)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(template)
}

func (a *Authority) sign(template *x509.Certificate) (Pair, error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %s: %w", template.Subject, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %s: %w", template.Subject, err)
	}
	keyPEM, err := privatePEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %s: %w", template.Subject, err)
	}
	return Pair{CertPEM: pemBlock("CERTIFICATE", der), KeyPEM: keyPEM}, nil
}

// SigningKey makes a key pair for service account tokens: the private key, and
// in place of a certificate its public half.
func SigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("signing key: %w", err)
	}
	private, err := privatePEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing key: %w", err)
	}
	return Pair{CertPEM: pemBlock("PUBLIC KEY", public), KeyPEM: private}, nil
}

func newTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("serial number for %s: %w", subject, err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
	}, nil
}

func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
