package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestOnePortSpeaksBoth(t *testing.T) {
	defer goleak.VerifyNone(t, append(known, goleak.IgnoreCurrent())...)
	l := Layout{t.TempDir()}
	if err := l.Prepare(); err != nil {
		t.Fatal(err)
	}
	id, err := loadIdentity(l)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHTTPServers(ln, id, zerolog.Nop())
	h.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.TLS != nil) }))
	silent, err := net.Dial("tcp", ln.Addr().String()) // says nothing, and must not hold up the end
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.ca)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	for url, want := range map[string]string{"http://" + ln.Addr().String(): "HTTP/1.1 false", "https://" + ln.Addr().String(): "HTTP/2.0 true"} {
		resp, err := (&http.Client{Transport: tr}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != want {
			t.Errorf("%s: got %q, want %q", url, b, want)
		}
	}
	tr.CloseIdleConnections()
	if err := h.close(); err != nil {
		t.Error(err)
	}
}

func TestGuard(t *testing.T) {
	h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		name, host string
		header     map[string]string
		want       int
	}{
		{"own address", "127.0.0.1:7474", nil, 204},
		{"own name", "localhost:7474", nil, 204},
		{"IPv6", "[::1]:7474", nil, 204},
		{"in-cluster name", "kubernetes.default.svc", nil, 204},
		{"rebinding", "evil.example:7474", nil, 421},
		{"looks like loopback", "127.0.0.1.evil.example", nil, 421},
		{"own page", "127.0.0.1:7474", map[string]string{"Origin": "http://127.0.0.1:7474"}, 204},
		{"another page", "127.0.0.1:7474", map[string]string{"Origin": "https://evil.example"}, 403},
		{"another port of this machine", "127.0.0.1:7474", map[string]string{"Origin": "http://127.0.0.1:8080"}, 403},
		{"opaque page", "127.0.0.1:7474", map[string]string{"Origin": "null"}, 403},
		{"image of another page", "127.0.0.1:7474", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"link on another page", "127.0.0.1:7474", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 204},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := http.NewRequest("GET", "http://x/", nil)
			r.Host = c.host
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d %s", w.Code, w.Body.String())
			}
		})
	}
}
