// Package interop tests the product with other people's programs: a current kubectl,
// and the CSI sidecars as separate processes. It is a module of its own, so that what
// those programs are built from stays out of the product's module.
//
// The tests take the product's binary from DRYDOCK_BIN, and build it when that is unset.
package interop
