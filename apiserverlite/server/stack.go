package server

// room is as much stack as most requests need.
type room [12 << 10]byte

// deepen grows the goroutine's stack in one step. HTTP/2 serves each request on a new goroutine, whose small
// stack would be copied at each doubling, with ever more calls on it: a tenth of a create's work.
//
//go:noinline
func deepen() {
	var r room
	touch(&r)
}

//go:noinline
func touch(*room) {}
