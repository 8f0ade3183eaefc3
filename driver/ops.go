package driver

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/internal/lab"
)

// ops runs operations under the lab's rules, with a span for each, in the name of one driver.
type ops struct {
	lab       *lab.Lab
	component *lab.Component // may be nil
	log       zerolog.Logger
}

// componentKind is how rules and spans name a driver.
const componentKind = "driver"

func (o ops) node() string {
	if o.component == nil {
		return ""
	}
	return o.component.Node()
}

// span begins a span of the driver.
func (o ops) span(ctx context.Context, op, volume string) (context.Context, *lab.Ender) {
	return o.lab.Timeline.Start(ctx, lab.SpanOptions{Op: op, Volume: volume, Component: componentKind, Node: o.node()})
}

// traced runs work in a span.
func (o ops) traced(ctx context.Context, op, volume string, work func(context.Context) error) error {
	ctx, sp := o.span(ctx, op, volume)
	err := work(ctx)
	code := ""
	if err != nil {
		code = codeOf(err).String()
	}
	sp.End(code, err)
	return err
}

// kernel runs a kernel or tool operation under the lab's rules, in a span called title.
func (o ops) kernel(ctx context.Context, op, title, volume string, work func(context.Context) error) error {
	return o.traced(ctx, title, volume, func(ctx context.Context) error { return o.quiet(ctx, op, volume, work) })
}

// quiet is kernel without a span.
func (o ops) quiet(ctx context.Context, op, volume string, work func(context.Context) error) error {
	call := lab.Call{Component: componentKind, Node: o.node(), Kind: lab.KindKernel, Op: op, Volume: volume}
	return errno(o.lab.Faults.Do(ctx, call, work))
}

// at is a kill point.
func (o ops) at(p lab.Point, volume string) { o.component.Point(p, volume) }

var errnos = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN, "EBUSY": syscall.EBUSY, "EEXIST": syscall.EEXIST, "EINVAL": syscall.EINVAL,
	"EIO": syscall.EIO, "ENODEV": syscall.ENODEV, "ENOENT": syscall.ENOENT, "ENOSPC": syscall.ENOSPC, "ENXIO": syscall.ENXIO,
	"EPERM": syscall.EPERM, "EROFS": syscall.EROFS, "ETIMEDOUT": syscall.ETIMEDOUT,
}

// errno gives a fault that names an error of the kernel that error as its cause.
func errno(err error) error {
	fault := lab.AsError(err)
	if fault == nil || fault.Action != lab.Fail {
		return err
	}
	if e, ok := errnos[fault.Code]; ok && !errors.Is(err, e) {
		return fmt.Errorf("%w: %w", err, e)
	}
	return err
}
