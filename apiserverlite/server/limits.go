package server

import (
	"context"
	"runtime"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Limits of what is worked on at once. Watches are not counted: they wait for events, not for places.
const (
	smallPlaces = 400  // upstream's max-requests-inflight
	flowWaiting = 2000 // requests of one flow that wait; more get 429
	largeList   = 500  // objects, clients' usual page: a list of more is a large one
)

// errBusy answers a flow that has too much waiting. Clients come again after the time it says.
var errBusy = apierrors.NewTooManyRequests("too many requests, please try again later.", 1)

// inFlight bounds the work at hand. Lists of many objects have places of their own, as many as there are
// processors, so that a storm of them leaves small requests and watches their share. A flow is a user with
// one program.
type inFlight struct{ small, large *fairQueue }

func newInFlight() *inFlight {
	return &inFlight{small: newFairQueue(smallPlaces, flowWaiting), large: newFairQueue(max(2, runtime.GOMAXPROCS(0)), flowWaiting)}
}

// enter waits for a place for the request, and returns how to give it back.
func (l *inFlight) enter(ctx context.Context, x *exchange) (func(), error) {
	if x.in.verb == "watch" {
		return func() {}, nil
	}
	q := l.small
	if x.large() {
		q = l.large
	}
	if err := q.enter(ctx, x.flow()); err != nil {
		return nil, err
	}
	return q.leave, nil
}

func (x *exchange) flow() string {
	agent, _, _ := strings.Cut(x.r.UserAgent(), " ")
	return x.user.Name + " " + agent
}

// large tells whether the request goes over many objects.
func (x *exchange) large() bool {
	if x.in.verb != "list" && x.in.verb != "deletecollection" || x.res.answer != nil {
		return false
	}
	if x.s.store.Snapshot(x.res.Storage).Len() <= largeList {
		return false
	}
	limit, err := strconv.Atoi(x.query.Get("limit"))
	return err != nil || limit <= 0 || limit > largeList || x.query.Get("resourceVersion") == "0" // which ignores the limit
}
