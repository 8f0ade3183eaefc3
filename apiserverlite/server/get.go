package server

import (
	"context"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/apiserverlite/storage"
)

func (x *exchange) get(ctx context.Context) (reply, error) {
	if export := x.query["export"]; len(export) > 0 && !strings.EqualFold(export[0], "false") && export[0] != "0" {
		return reply{}, badRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	var o metav1.GetOptions
	if err := x.parameters(&o); err != nil {
		return reply{}, err
	}
	if err := x.notOlderThan(ctx, o.ResourceVersion); err != nil {
		return reply{}, err
	}
	e, ok := x.s.store.Get(x.res.key(x.in.namespace, x.in.name))
	if !ok {
		return reply{}, notFound(x.res.GR(), x.in.name)
	}
	obj, err := x.res.view(e)
	return reply{object: obj, entry: e}, err
}

// futureWait is how long a read waits for a revision that the store has not reached.
const futureWait = 3 * time.Second

// notOlderThan waits until the store has reached a revision.
func (x *exchange) notOlderThan(ctx context.Context, version string) error {
	if version == "" || version == "0" {
		return nil
	}
	want, err := parseRevision(version)
	if err != nil {
		return err
	}
	return x.reach(ctx, want)
}

func (x *exchange) reach(ctx context.Context, want storage.Revision) error {
	if want <= x.s.store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	if err := x.s.store.WaitRevision(ctx, want); err != nil {
		return futureRevision(want, x.s.store.Revision())
	}
	return nil
}

func parseRevision(version string) (storage.Revision, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, badRequest("resourceVersion: Invalid value: %q: %v", version, err)
	}
	return storage.Revision(n), nil
}
