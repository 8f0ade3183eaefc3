package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

// exchange is one request to a resource on its way to an answer.
type exchange struct {
	s        *Server
	r        *http.Request
	in       info
	res      *resource
	sub      registry.Subresource
	user     User
	out      output
	query    url.Values
	time     context.Context // ends when the request's time is up, or its client is gone
	conn     *http.ResponseController
	warnings warnings
}

// reply is an answer that is not written yet, so that the lab can lose it.
type reply struct {
	code   int
	object runtime.Object
	// entry, if set, is where object's bytes are cached.
	entry *storage.Entry
	// stream, if set, writes the whole answer itself.
	stream func(http.ResponseWriter)
	// discard, if set, frees what stream would have used when the answer is lost.
	discard func()
}

// maxBody is upstream's limit of a request's body.
const maxBody = 3 << 20

func (x *exchange) body() ([]byte, error) {
	b, err := x.read()
	if err != nil {
		return nil, err
	}
	number, found := registry.Outsized(b)
	if !found && strings.Contains(x.r.Header.Get("Content-Type"), "cbor") {
		number, found = outsizedCBOR(b)
	}
	if found {
		return nil, badRequest("the request's body holds the number %s, which no quantity can be", number)
	}
	return b, nil
}

// read takes in the body while the request has time: a client that does not send what it announced would keep its
// place among the requests at hand for ever.
func (x *exchange) read() ([]byte, error) {
	if x.r.ContentLength > maxBody {
		return nil, tooLarge(maxBody)
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(x.time, func() {
		defer close(cut)
		_ = x.conn.SetReadDeadline(time.Unix(1, 0)) // without deadlines the client is this process
	})
	defer func() {
		if !stop() {
			<-cut // HTTP/2 has no connection to cut once its handler has returned, and panics
		}
	}()
	var b []byte
	var err error
	if n := x.r.ContentLength; n >= 0 {
		b = make([]byte, n)
		_, err = io.ReadFull(x.r.Body, b)
	} else {
		b, err = io.ReadAll(io.LimitReader(x.r.Body, maxBody+1))
	}
	switch {
	case err != nil && x.time.Err() != nil:
		return nil, context.Cause(x.time)
	case err != nil:
		return nil, badRequest("read the request's body: %v", err)
	case len(b) > maxBody:
		return nil, tooLarge(maxBody)
	}
	return b, nil
}

// untracked tells our own components, whose writes leave managedFields alone unless all are to be recorded.
func (x *exchange) untracked() bool {
	return !x.s.cfg.TrackComponents && strings.HasPrefix(x.r.UserAgent(), internalAgent)
}

const internalAgent = "drydock-"

// managers are the programs whose part our own components play, as managedFields name them.
var managers = map[string]string{
	internalAgent + "controllers": "kube-controller-manager",
	internalAgent + "kubelet":     "kubelet",
	internalAgent + "provisioner": "csi-provisioner",
	internalAgent + "attacher":    "csi-attacher",
	internalAgent + "resizer":     "csi-resizer",
}

// manager is who writes, for managedFields.
func (x *exchange) manager(fieldManager string) string {
	if fieldManager != "" {
		return fieldManager
	}
	agent, _, _ := strings.Cut(x.r.UserAgent(), "/")
	if part, ok := managers[agent]; ok {
		return part
	}
	var name strings.Builder
	for _, c := range agent {
		if name.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		if unicode.IsPrint(c) {
			name.WriteRune(c)
		}
	}
	if name.Len() == 0 {
		return "unknown"
	}
	return name.String()
}

// call describes the request to the fault rules. Our own components are known by their
// user agent "drydock-kubelet/n1", others by the agent's name, or the user's.
func (x *exchange) call() lab.Call {
	c := lab.Call{Kind: lab.KindAPI, Op: x.in.op(), Namespace: x.in.namespace, Name: x.in.name}
	agent, detail, _ := strings.Cut(x.r.UserAgent(), "/")
	switch own, isOwn := strings.CutPrefix(agent, internalAgent); {
	case isOwn:
		c.Component = own
		if own == "kubelet" {
			c.Node, _, _ = strings.Cut(detail, " ")
		}
	case agent != "":
		c.Component = agent
	default:
		c.Component = x.user.Name
	}
	if x.in.resource == "persistentvolumes" {
		c.Volume = x.in.name
	}
	return c
}

// serveAPI answers everything below a group version.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	in, ok := parse(r)
	user, err := s.identify(r)
	switch {
	case err != nil:
		s.fail(w, r, output{}, err)
		return
	case !ok:
		s.fail(w, r, outputFor(r), pathNotFound())
		return
	case !in.resourceReq:
		if err := s.permitPath(user, strings.ToLower(r.Method), r.URL.Path); err != nil {
			s.fail(w, r, outputFor(r), err)
			return
		}
		if r.Method != http.MethodGet && s.routedGroup(in.group) {
			s.fail(w, r, outputFor(r), noRoute())
			return
		}
		s.groupVersion(w, r, in)
		return
	}
	if in.verb != "watch" { // which keeps its stack, and needs little
		deepen()
	}
	x := &exchange{s: s, r: r, in: in, user: user, conn: http.NewResponseController(w)}
	rep, err := x.run()
	if err != nil {
		var lost *lostError
		if errors.As(err, &lost) {
			panic(http.ErrAbortHandler)
		}
		x.warnings.write(w.Header())
		if x.out.as != "" { // there is no such form of an error
			x.out = outputFor(r)
		}
		s.fail(w, r, x.out, err)
		return
	}
	x.warnings.write(w.Header())
	if rep.stream != nil {
		rep.stream(w)
		return
	}
	x.write(w, rep)
}

// run passes the request through the lab to its verb.
func (x *exchange) run() (reply, error) {
	if err := x.permit(); err != nil {
		x.out = outputFor(x.r)
		return reply{}, err
	}
	if err := x.resolve(); err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(x.s.life, cancel)() // what waits in the lab must not hold up Close
	if x.in.verb != "watch" {
		limit := requestLimit
		if x.in.verb != "get" && x.in.verb != "list" {
			limit = writeLimit
		}
		if t := x.query.Get("timeout"); t != "" {
			d, err := time.ParseDuration(t)
			if err != nil {
				return reply{}, badRequest("invalid timeout specified in the request URL - %v", err)
			}
			if d > 0 {
				limit = min(limit, d)
			}
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	x.time = ctx
	var rep reply
	work := func(ctx context.Context) error {
		leave, err := x.s.inFlight.enter(ctx, x)
		if err != nil {
			return err
		}
		defer leave()
		rep, err = x.dispatch(ctx)
		return err
	}
	var err error
	if call := x.call(); x.in.group == lab.Group || lab.AboveRules(call.Component) {
		err = work(ctx)
	} else {
		err = x.s.cfg.Lab.Faults.Do(ctx, call, work)
	}
	if err != nil && rep.discard != nil {
		rep.discard()
	}
	return rep, faultAnswer(err)
}

// resolve finds the resource and the form of the answer.
func (x *exchange) resolve() error {
	x.out = outputFor(x.r) // for errors before the negotiation
	res, ok := x.s.lookup(x.in)
	if !ok {
		return x.s.nowhere(x.in.group)
	}
	x.res = res
	if res.Namespaced && x.in.namespace == "" && x.in.name != "" || !res.Namespaced && x.in.namespace != "" {
		return pathNotFound()
	}
	if res.Namespaced && x.in.namespace == "" && x.in.verb != "list" && x.in.verb != "watch" {
		return x.noMethod()
	}
	if x.r.Method == http.MethodHead && res.routed() {
		return x.noMethod()
	}
	if x.in.subresource != "" {
		if x.sub, ok = res.Subresources[x.in.subresource]; !ok && res.routed() {
			return pathNotFound()
		} else if !ok {
			return notFound(res.GR(), x.in.name)
		}
	}
	x.query = url.Values{}
	if x.r.URL.RawQuery != "" {
		var err error
		if x.query, err = url.ParseQuery(x.r.URL.RawQuery); err != nil {
			return badRequest("parse the query: %v", err)
		}
	}
	if x.in.subresource == nodeProxy {
		return nil // what is there has forms of its own
	}
	protobuf := res.Protobuf || x.in.subresource != "" && !x.sub.GVK.Empty()
	many := x.in.verb == "list" || x.in.verb == "deletecollection"
	of := offer{protobuf: protobuf, metadata: true, table: res.Table != nil, partial: !many, partials: many}
	out, ok := negotiate(x.r, of)
	if !ok {
		return x.noFormat(protobuf)
	}
	x.out = out
	return nil
}

func (s *Server) lookup(in info) (*resource, bool) {
	r, ok := s.byGVR[gvr(in)]
	if !ok {
		r, ok = s.defined().byGVR[gvr(in)]
		ok = ok && len(r.Verbs) > 0
	}
	return r, ok
}

func (x *exchange) verb(ctx context.Context) (reply, error) {
	if x.in.subresource != "" {
		return x.subresource(ctx)
	}
	if x.in.name == "" && (x.in.verb == "update" || x.in.verb == "patch") && !x.res.routed() {
		return reply{}, badRequest("name must be provided")
	}
	if !x.res.hasVerb(x.in.verb) || x.in.verb == "create" && x.in.name != "" && x.res.routed() || (x.in.verb == "update" || x.in.verb == "patch") && x.in.name == "" {
		return reply{}, x.noMethod()
	}
	if x.res.answer != nil {
		return x.res.answer(x, ctx)
	}
	switch x.in.verb {
	case "get":
		return x.get(ctx)
	case "list":
		return x.list(ctx)
	case "watch":
		return x.watch(ctx)
	case "create":
		return x.create(ctx)
	case "update":
		return x.update(ctx)
	case "patch":
		return x.patch(ctx)
	case "delete":
		return x.delete(ctx)
	case "deletecollection":
		return x.deleteCollection(ctx)
	}
	return reply{}, x.noMethod()
}
