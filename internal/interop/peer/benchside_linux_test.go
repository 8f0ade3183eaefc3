package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// side is a server under measurement.
type side struct {
	name  string
	cfg   *rest.Config
	pids  []int // the API server's first
	made  int   // objects so far
	state string
	ready time.Duration
	stop  func()
}

func (s *side) client(b *testing.B, media string) kubernetes.Interface {
	b.Helper()
	cfg := rest.CopyConfig(s.cfg)
	cfg.ContentType = media
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// next names n new objects.
func (s *side) next(n int) []string {
	names := make([]string, max(0, n))
	for i := range names {
		s.made++
		names[i] = fmt.Sprint("c-", s.made)
	}
	return names
}

// startBinary runs the product's binary.
func startBinary(b *testing.B, state string) *side {
	b.Helper()
	bin := os.Getenv("DRYDOCK_BIN")
	if bin == "" {
		bin = "../../../bin/drydock"
	}
	cmd := exec.Command(bin, "up", "--api-only", "--devices", "sim", "--state", state, "--listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatalf("%v: run \"make bench\", which builds it", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "is ready in") {
	}
	s := &side{name: "ours", pids: []int{cmd.Process.Pid}, state: state, ready: time.Since(begin)}
	go func() {
		for lines.Scan() {
		}
	}()
	s.stop = sync.OnceFunc(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	if s.cfg, err = clientcmd.BuildConfigFromFlags("", filepath.Join(state, "kubeconfig")); err != nil {
		s.stop()
		b.Fatalf("the server did not become ready: %v", err)
	}
	s.cfg.QPS = -1
	return s
}

// startFloor is a server that answers whatever is posted to it with one object of another one, and sends that to all watches.
func startFloor(b *testing.B, of *side, media string) *side {
	b.Helper()
	object := of.raw(b, media, sampleName)
	empty := of.raw(b, media, "", "limit", "1", "labelSelector", "app=none")
	frame := added(object, media)
	var mu sync.Mutex
	watches := map[chan []byte]bool{}
	return serveFloor(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		switch {
		case r.Method == http.MethodPost:
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			for c := range watches {
				c <- frame
			}
			mu.Unlock()
			w.WriteHeader(http.StatusCreated)
			w.Write(object)
		case r.URL.Query().Get("watch") != "":
			mine := make(chan []byte, 1)
			mu.Lock()
			watches[mine] = true
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				delete(watches, mine)
			}()
			w.Header().Set("Content-Type", media+";stream=watch")
			w.(http.Flusher).Flush()
			for {
				select {
				case frame := <-mine:
					w.Write(frame)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		default:
			w.Write(empty)
		}
	})
}

// added is an event as watches are sent it.
func added(object []byte, media string) []byte {
	if media == asJSON {
		return fmt.Appendf(nil, "{\"type\":\"ADDED\",\"object\":%s}\n", bytes.TrimSpace(object))
	}
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), object)
	ev := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "ADDED")
	ev = protowire.AppendBytes(protowire.AppendTag(ev, 2, protowire.BytesType), raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(ev))), ev...)
}

// startListFloor is a server that answers everything with what another one answers to the list.
func startListFloor(b *testing.B, of *side, media string) *side {
	b.Helper()
	body := of.raw(b, media, "")
	return serveFloor(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.Write(body)
	})
}

// raw is what a server answers to the question for one of the objects, or with a name that is empty for all.
func (s *side) raw(b *testing.B, media, name string, params ...string) []byte {
	b.Helper()
	c, ok := s.client(b, media).CoreV1().RESTClient().(*rest.RESTClient)
	if !ok {
		b.Fatal("client-go has another client")
	}
	r := c.Get().Namespace(benchNamespace).Resource("configmaps")
	if name != "" {
		r = r.Name(name)
	}
	for i := 0; i < len(params); i += 2 {
		r = r.Param(params[i], params[i+1])
	}
	body, err := r.DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// serveFloor serves as all servers here do: over TLS, by HTTP/2.
func serveFloor(b *testing.B, h http.HandlerFunc) *side {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2000}
	s.StartTLS()
	b.Cleanup(s.Close)
	return &side{name: "the floor", cfg: &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1, DisableCompression: true}}
}

// memory is what processes have of the machine's, in MB. Pages of the program's file belong to the file: the
// kernel maps as much of it as it has at hand, and takes them back when it likes.
type memory struct{ own, file int }

func (m memory) sum() int { return m.own + m.file }
func (m memory) String() string {
	return fmt.Sprintf("%d MB, %d of them the program's file", m.sum(), m.file)
}

// memory counts the file once: an etcd that is linked in has the same.
func (s *side) memory(b *testing.B) memory {
	b.Helper()
	var m memory
	for i, pid := range s.pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			f := strings.Fields(line)
			switch {
			case f[0] == "RssAnon:":
				m.own += megabytes(f[1])
			case f[0] == "RssFile:" && i == 0:
				m.file += megabytes(f[1])
			}
		}
	}
	return m
}

func megabytes(kb string) int {
	n, _ := strconv.Atoi(kb) // the kernel's own number
	return n >> 10
}
