package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// TestClientCertificates: ours say who a client is, those of other authorities nothing; without one all is as before.
func TestClientCertificates(t *testing.T) {
	l, other := Layout{t.TempDir()}, Layout{t.TempDir()}
	ids := map[Layout]*identity{}
	for _, l := range []Layout{l, other} {
		if err := l.Prepare(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // made, then read
			id, err := loadIdentity(l)
			if err != nil {
				t.Fatal(err)
			}
			ids[l] = id
		}
	}
	id := ids[l]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHTTPServers(ln, id, zerolog.Nop())
	h.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := id.clients.user(r)
		fmt.Fprint(w, ok, " ", u.Name, " ", u.Groups, " ", len(u.Extra))
	}))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.ca)
	for _, x := range []struct {
		from *Layout
		want string
	}{{nil, "false  [] 0"}, {&l, "true kubernetes-admin [system:masters system:authenticated] 1"}, {&other, "false  [] 0"}} {
		cfg := &tls.Config{RootCAs: roots}
		if x.from != nil {
			cert, err := tls.LoadX509KeyPair(filepath.Join(x.from.PKI(), "admin.crt"), filepath.Join(x.from.PKI(), "admin.key"))
			if err != nil {
				t.Fatal(err)
			}
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		tr := &http.Transport{TLSClientConfig: cfg}
		resp, err := (&http.Client{Transport: tr}).Get("https://" + ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if string(b) != x.want {
			t.Errorf("got %q, want %q", b, x.want)
		}
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
}
