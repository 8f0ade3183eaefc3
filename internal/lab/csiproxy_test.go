package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// tinyDriver answers as its functions say.
type tinyDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	create func(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
	stage  func(context.Context, *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error)
}

func (d *tinyDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "tiny.test"}, nil
}

func (d *tinyDriver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if d.create != nil {
		return d.create(ctx, r)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1", CapacityBytes: 1 << 30}}, nil
}

func (d *tinyDriver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if d.stage != nil {
		return d.stage(ctx, r)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// vendor is a service that no specification knows: one unary and one streaming method.
var vendor = grpc.ServiceDesc{
	ServiceName: "vendor.example.v1.Extra",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Upper", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.StringValue{}
		if err := dec(in); err != nil {
			return nil, err
		}
		return wrapperspb.String(strings.ToUpper(in.GetValue())), nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Echo", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			in := &wrapperspb.StringValue{}
			if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
				s.SetTrailer(metadata.Pairs("sum", "done"))
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(wrapperspb.String("echo " + in.GetValue())); err != nil {
				return err
			}
		}
	}}},
}

type bench struct {
	lab    *Lab
	dir    string
	driver *tinyDriver
	conn   *grpc.ClientConn
	proxy  *Proxy
	log    *strings.Builder
	end    context.CancelFunc     // of the proxy
	local  atomic.Pointer[nearby] // the driver in this process, if there
}

// nearby counts the calls that reach a driver without a socket.
type nearby struct {
	grpc.ClientConnInterface
	calls atomic.Int32
}

func (n *nearby) Invoke(ctx context.Context, method string, in, out any, o ...grpc.CallOption) error {
	n.calls.Add(1)
	return n.ClientConnInterface.Invoke(ctx, method, in, out, o...)
}

// startDriver serves d on the bench's driver socket until stop is called.
func (b *bench) startDriver(t *testing.T) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(b.dir, "driver.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(16<<20))
	csi.RegisterIdentityServer(s, b.driver)
	csi.RegisterControllerServer(s, b.driver)
	csi.RegisterNodeServer(s, b.driver)
	s.RegisterService(&vendor, b.driver)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			s.Stop()
			<-done
		}
	}
	t.Cleanup(stop)
	return stop
}

// newBench starts a proxy, without a driver behind it.
func newBench(t *testing.T) *bench {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{lab: New(Options{}), dir: dir, driver: &tinyDriver{}, log: &strings.Builder{}}
	p, err := NewProxy(ProxyConfig{
		Listen: filepath.Join(dir, "csi.sock"), Target: filepath.Join(dir, "driver.sock"),
		Local: func() grpc.ClientConnInterface {
			if n := b.local.Load(); n != nil {
				return n
			}
			return nil
		},
		Lab: b.lab, Caller: "kubelet", Node: "n1", Log: zerolog.New(zerolog.SyncWriter(b.log)),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.proxy = p
	ctx, cancel := context.WithCancel(context.Background())
	b.end = cancel
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "csi.sock")); !os.IsNotExist(err) {
			t.Errorf("the socket stayed: %v", err)
		}
	})
	b.conn, err = grpc.NewClient("unix://"+filepath.Join(dir, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.conn.Close() })
	return b
}

func (b *bench) spans(op string) []Span {
	var out []Span
	for _, s := range b.lab.Timeline.Spans() {
		if s.Op == op {
			out = append(out, s)
		}
	}
	return out
}

func (b *bench) rule(t *testing.T, r Rule) *Handle {
	t.Helper()
	h, err := b.lab.Faults.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Remove)
	return h
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got %s (%v), want %s", got, err, want)
	}
}

func TestProxyPassesEverythingOn(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	b.driver.create = func(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := md.Get("x-tenant"); len(got) != 1 || got[0] != "blue" {
			t.Errorf("metadata did not arrive: %v", md)
		}
		if len(md.Get(ComponentKey)) != 0 {
			t.Errorf("our own metadata reached the driver: %v", md)
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the deadline did not arrive")
		}
		grpc.SetHeader(ctx, metadata.Pairs("x-head", "1"))
		grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "2"))
		if r.GetName() == "bad" {
			st, err := status.New(codes.ResourceExhausted, "no room").WithDetails(durationpb.New(7 * time.Second))
			if err != nil {
				t.Error(err)
			}
			return nil, st.Err()
		}
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1", VolumeContext: map[string]string{"big": strings.Repeat("x", 3<<20)}}}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-tenant", "blue", ComponentKey, "provisioner")
	client := csi.NewControllerClient(b.conn)

	var head, tail metadata.MD
	got, err := client.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "pvc-1"}, grpc.Header(&head), grpc.Trailer(&tail))
	if err != nil || len(got.GetVolume().GetVolumeContext()["big"]) != 3<<20 {
		t.Fatalf("CreateVolume: %v", err)
	}
	if head.Get("x-head") == nil || tail.Get("x-tail") == nil {
		t.Fatalf("header %v trailer %v", head, tail)
	}
	head, tail = nil, nil
	_, err = client.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "bad"}, grpc.Header(&head), grpc.Trailer(&tail))
	wantCode(t, err, codes.ResourceExhausted)
	st, _ := status.FromError(err)
	if len(st.Details()) != 1 || st.Details()[0].(*durationpb.Duration).GetSeconds() != 7 || st.Message() != "no room" {
		t.Fatalf("status lost something: %v", st)
	}
	if head.Get("x-head") == nil || tail.Get("x-tail") == nil {
		t.Fatalf("of a failed call: header %v trailer %v", head, tail)
	}
	sp := b.spans("CreateVolume")
	if len(sp) != 2 || sp[0].Component != "provisioner" || sp[0].Node != "n1" || sp[0].Volume != "pvc-1" || sp[0].Code != "OK" ||
		sp[1].Code != "ResourceExhausted" || sp[1].Error != "no room" {
		t.Fatalf("spans: %+v", sp)
	}
	if n := len(sp[0].Attrs["response"]); n > DefaultBodyLimit+20 {
		t.Fatalf("recorded response has %d bytes", n)
	}
	wantCode(t, b.conn.Invoke(ctx, "/csi.v1.Controller/NoSuchMethod", &wrapperspb.StringValue{}, &wrapperspb.StringValue{}), codes.Unimplemented)
}

// TestProxyTakesTheShortWay: calls of the specification reach a driver in this process without
// its socket, are recorded and meet the rules as ever; the others, and those of a driver that has gone, take the socket.
func TestProxyTakesTheShortWay(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	conn, err := grpc.NewClient("unix://"+filepath.Join(b.dir, "driver.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	near := &nearby{ClientConnInterface: conn}
	b.local.Store(near)
	controller := csi.NewControllerClient(b.conn)
	create := &csi.CreateVolumeRequest{Name: "pvc-a", Secrets: map[string]string{"key": "hidden-word"}}
	v, err := controller.CreateVolume(t.Context(), create)
	if err != nil || v.GetVolume().GetVolumeId() == "" || near.calls.Load() != 1 {
		t.Fatalf("got %v, %v after %d calls", v, err, near.calls.Load())
	}
	if s := b.spans("CreateVolume"); len(s) != 1 || s[0].Code != "OK" || !strings.Contains(s[0].Attrs["request"], "pvc-a") || s[0].Attrs["response"] == "" || strings.Contains(s[0].Attrs["request"], "hidden-word") {
		t.Errorf("recorded: %+v", s)
	}
	h := b.rule(t, Rule{Op: "CreateVolume", Action: LateOK})
	if _, err = controller.CreateVolume(t.Context(), create); status.Code(err) != codes.DeadlineExceeded || near.calls.Load() != 2 {
		t.Errorf("done but late: %v after %d calls", err, near.calls.Load())
	}
	h.Remove()
	out := &wrapperspb.StringValue{}
	if err := b.conn.Invoke(t.Context(), "/vendor.example.v1.Extra/Upper", wrapperspb.String("a"), out); err != nil || out.GetValue() != "A" || near.calls.Load() != 2 {
		t.Errorf("a vendor's call: %v, %v", out, err)
	}
	b.local.Store(nil)
	if _, err = controller.CreateVolume(t.Context(), create); err != nil || near.calls.Load() != 2 {
		t.Errorf("over the socket: %v", err)
	}
}

func TestProxyPassesUnknownServices(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	out := &wrapperspb.StringValue{}
	if err := b.conn.Invoke(t.Context(), "/vendor.example.v1.Extra/Upper", wrapperspb.String("abc"), out); err != nil || out.GetValue() != "ABC" {
		t.Fatalf("Upper: %q %v", out.GetValue(), err)
	}
	s, err := b.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/vendor.example.v1.Extra/Echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two"} { // each answer is awaited: nothing may be held back
		if err := s.SendMsg(wrapperspb.String(word)); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(out); err != nil || out.GetValue() != "echo "+word {
			t.Fatalf("%q %v", out.GetValue(), err)
		}
	}
	s.CloseSend()
	if err := s.RecvMsg(out); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got := s.Trailer().Get("sum"); len(got) != 1 {
		t.Fatalf("trailer: %v", s.Trailer())
	}
	if sp := b.spans("Echo"); len(sp) != 1 || sp[0].Code != "OK" || !strings.Contains(sp[0].Attrs["response"], "2 messages") {
		t.Fatalf("span: %+v", sp)
	}
}

func TestProxyCancelsAtTheDriver(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	entered, left := make(chan struct{}), make(chan error, 1)
	b.driver.stage = func(ctx context.Context, _ *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
		close(entered)
		<-ctx.Done()
		left <- ctx.Err()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := csi.NewNodeClient(b.conn).NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v"})
	wantCode(t, err, codes.Canceled)
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestProxyKeepsSecretsOut(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	const secret, token = `s3cr"et-value`, `{"":{"token":"eyJhbGciOi"}}`
	b.driver.create = func(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
		if r.GetSecrets()["password"] != secret {
			t.Errorf("the driver did not get the secret: %v", r)
		}
		if r.GetName() == "fails" {
			return nil, status.Error(codes.Unauthenticated, "cannot log in with "+secret)
		}
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1", VolumeContext: map[string]string{"echo": secret}}}, nil
	}
	secrets := map[string]string{"password": secret}
	c, n := csi.NewControllerClient(b.conn), csi.NewNodeClient(b.conn)
	if _, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "works", Secrets: secrets}); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "fails", Secrets: secrets})
	if !strings.Contains(status.Convert(err).Message(), secret) {
		t.Fatalf("the caller's error was changed: %v", err)
	}
	if _, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1", Secrets: secrets,
		VolumeContext: map[string]string{tokensKey: token, "plain": "seen"}}); err != nil {
		t.Fatal(err)
	}
	record := b.log.String()
	for _, s := range b.lab.Timeline.Spans() {
		record += s.Error
		for k, v := range s.Attrs {
			record += k + v
		}
	}
	for _, bad := range []string{secret, `s3cr\"et-value`, "eyJhbGciOi"} {
		if strings.Contains(record, bad) {
			t.Errorf("%q is on record: %s", bad, record)
		}
	}
	if !strings.Contains(record, stripped) || !strings.Contains(record, "seen") || !strings.Contains(record, "cannot log in with "+stripped) {
		t.Errorf("record lacks what it should hold: %s", record)
	}
}

func TestProxyNamesVolumes(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	ctx := t.Context()
	n := csi.NewNodeClient(b.conn)
	n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "vol-1"})
	if _, err := csi.NewControllerClient(b.conn).CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "pvc-9"}); err != nil {
		t.Fatal(err)
	}
	n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "vol-1"})
	for _, s := range b.spans("NodeStageVolume") {
		if s.Volume != "pvc-9" {
			t.Errorf("span of %s: %+v", s.Volume, s)
		}
	}
	// A rule may name the volume either way.
	for _, name := range []string{"vol-1", "pvc-9"} {
		h := b.rule(t, Rule{Op: "NodeStageVolume", Volume: name, Action: Fail, Code: "NotFound", Times: 1})
		_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "vol-1"})
		wantCode(t, err, codes.NotFound)
		h.Remove()
	}
}
