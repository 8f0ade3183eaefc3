package fakecloud

// trouble is what SQLite's error codes come down to for us.
type trouble int

const (
	troubleOther trouble = iota
	troubleFull
	troubleBusy
	troubleDamaged
	troubleDenied
)
