package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

func (x *exchange) create(ctx context.Context) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	obj, err := x.object(o.validation)
	if err != nil {
		return reply{}, err
	}
	r, err := x.writing(o).create(ctx, obj)
	if err != nil {
		return reply{}, err
	}
	return reply{code: http.StatusCreated, object: r.object, entry: r.entry}, nil
}

// object is the one in the request's body, with its defaults.
func (x *exchange) object(validation string) (runtime.Object, error) {
	body, err := x.body()
	if err != nil {
		return nil, err
	}
	m, err := bodyMedia(x.r, x.res.Protobuf)
	if err != nil {
		return nil, err
	}
	obj, problems, err := x.decode(body, m, validation)
	if err != nil {
		return nil, err
	}
	x.problems(problems)
	x.res.Strategy.Default(obj)
	return obj, nil
}

// problems of a strict reading become warnings.
func (x *exchange) problems(errs []error) {
	for _, e := range errs {
		x.warnings.add(e.Error())
	}
}
