package server

import (
	"context"
	"net/http"
)

func (x *exchange) create(ctx context.Context) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	body, err := x.body()
	if err != nil {
		return reply{}, err
	}
	m, err := bodyMedia(x.r, x.res.Protobuf)
	if err != nil {
		return reply{}, err
	}
	obj, problems, err := x.decode(body, m, o.validation)
	if err != nil {
		return reply{}, err
	}
	x.problems(problems)
	x.res.Strategy.Default(obj)
	r, err := x.writing(o).create(ctx, obj)
	if err != nil {
		return reply{}, err
	}
	return reply{code: http.StatusCreated, object: r.object, entry: r.entry}, nil
}

// problems of a strict reading become warnings.
func (x *exchange) problems(errs []error) {
	for _, e := range errs {
		x.warnings.add(e.Error())
	}
}
