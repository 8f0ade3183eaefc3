package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"drydock.dev/drydock/internal/check"
)

// errLeak is the kind of error that --fail-on-leak makes of leftovers.
var errLeak = errors.New("the cloud holds what no Kubernetes object justifies")

// account asks the running cluster what it leaves in its cloud.
func (r *running) account(ctx context.Context) (charges []check.Charge, err error) {
	return charges, r.control(ctx, "/account", &charges)
}

// printAccount lists leftovers with their price, if there are any.
func printAccount(out io.Writer, charges []check.Charge) {
	for _, c := range charges {
		fmt.Fprintln(out, c)
	}
	if total := check.Total(charges); total > 0 {
		fmt.Fprintf(out, "left in the cloud: $%.2f a month at list price\n", total)
	}
}
