package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// identity is what proves the cluster to its clients and its owner to the cluster. It
// is made once for a state directory, so that a kubeconfig outlives restarts.
type identity struct {
	ca    []byte // PEM
	cert  tls.Certificate
	token string // of the owner: Kubernetes and cloud alike
	// clients signs the certificates of clients that have any.
	clients *clientAuthority
}

const certLife = 10 * 365 * 24 * time.Hour

func loadIdentity(l Layout) (*identity, error) {
	id := &identity{}
	var err error
	if id.token, err = loadToken(l.Token()); err != nil {
		return nil, err
	}
	caFile, certFile, keyFile := filepath.Join(l.PKI(), "ca.crt"), filepath.Join(l.PKI(), "server.crt"), filepath.Join(l.PKI(), "server.key")
	id.ca, err = os.ReadFile(caFile)
	if err == nil {
		id.cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeCertificates(caFile, certFile, keyFile); err == nil {
			id.ca, err = os.ReadFile(caFile)
		}
		if err == nil {
			id.cert, err = tls.LoadX509KeyPair(certFile, keyFile)
		}
	}
	if err == nil {
		id.clients, err = loadClientAuthority(l.PKI())
	}
	if err != nil {
		return nil, fmt.Errorf("load certificates from %s: %w; remove that directory to have them made anew", l.PKI(), err)
	}
	return id, nil
}

func loadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		if t := strings.TrimSpace(string(b)); t != "" {
			return t, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the owner's token: %w", err)
	}
	t := randomToken()
	return t, writeFile(path, []byte(t+"\n"), 0o600)
}

func randomToken() string {
	var b [24]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// makeCertificates writes a CA and a server certificate signed by it. The CA's key is not kept.
func makeCertificates(caFile, certFile, keyFile string) error {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "drydock"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "drydock server"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{keyFile, "EC PRIVATE KEY", keyDER}, {certFile, "CERTIFICATE", der}, {caFile, "CERTIFICATE", caDER}} {
		if err := writeFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes the file that makes every Kubernetes client speak to this cluster.
func (id *identity) writeKubeconfig(path, name, addr string) error {
	c := clientcmdapi.NewConfig()
	ctx := "drydock-" + name
	// To a server on the same machine, compressing and reading a long list takes a third longer than sending it.
	c.Clusters[ctx] = &clientcmdapi.Cluster{Server: "https://" + addr, CertificateAuthorityData: id.ca, DisableCompression: true}
	c.AuthInfos[ctx] = &clientcmdapi.AuthInfo{Token: id.token}
	c.Contexts[ctx] = &clientcmdapi.Context{Cluster: ctx, AuthInfo: ctx, Namespace: "default"}
	c.CurrentContext = ctx
	b, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return writeFile(path, b, 0o600)
}
