package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"drydock.dev/drydock/apiserverlite/server"
)

// clientAuthority signs the certificates by which clients of the TLS port can say who they are: the common name is the
// user, the organizations are the groups. Its key is kept beside it, so that a test can make users of its own with openssl; an administrator's certificate
// (admin.crt, admin.key) is made with it.
type clientAuthority struct{ pool *x509.CertPool }

func loadClientAuthority(dir string) (*clientAuthority, error) {
	file := filepath.Join(dir, "client-ca.crt")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeClientAuthority(dir); err == nil {
			b, err = os.ReadFile(file)
		}
	}
	if err != nil {
		return nil, err
	}
	a := &clientAuthority{pool: x509.NewCertPool()}
	if !a.pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return a, nil
}

func makeClientAuthority(dir string) error {
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "drydock clients"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	admin := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// The authority's certificate comes last: its being there says that all is.
	for _, x := range []struct {
		name string
		cert *x509.Certificate
	}{{"admin", admin}, {"client-ca", ca}} {
		key := caKey
		if x.cert != ca {
			if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
				return err
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, x.cert, ca, key.Public(), caKey)
		if err != nil {
			return err
		}
		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, x.name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, x.name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// user is who the certificate of a request says it is from; false without one, and for one of another authority or another time.
func (a *clientAuthority) user(r *http.Request) (server.User, bool) {
	if a == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return server.User{}, false
	}
	cert := r.TLS.PeerCertificates[0]
	opts := x509.VerifyOptions{Roots: a.pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range r.TLS.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := cert.Verify(opts); err != nil || cert.Subject.CommonName == "" {
		return server.User{}, false
	}
	sum := sha256.Sum256(cert.Raw)
	return server.User{Name: cert.Subject.CommonName, Groups: append(append([]string{}, cert.Subject.Organization...), "system:authenticated"),
		Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"X509SHA256=" + hex.EncodeToString(sum[:])}}}, true
}
