package volumemanager

import (
	"container/heap"
	"time"
)

// deadlines says when the pauses of operations are over, the earliest first. One that
// does not matter any more stays until its time: who is told of it looks, and finds nothing.
type deadlines []deadline

type deadline struct {
	at time.Time
	op *operation
}

// push enters the end of an operation's pause.
func (d *deadlines) push(o *operation) {
	o.due = o.ended.Add(o.pause + pauseMargin)
	heap.Push((*byTime)(d), deadline{o.due, o})
}

// pop returns the operation of the earliest, which must be there.
func (d *deadlines) pop() *operation {
	x := heap.Pop((*byTime)(d)).(deadline)
	if x.op.due.Equal(x.at) {
		x.op.due = time.Time{}
	}
	return x.op
}

// byTime is the heap's view of deadlines.
type byTime []deadline

func (b byTime) Len() int           { return len(b) }
func (b byTime) Less(i, j int) bool { return b[i].at.Before(b[j].at) }
func (b byTime) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byTime) Push(x any)        { *b = append(*b, x.(deadline)) }
func (b *byTime) Pop() any {
	last := len(*b) - 1
	x := (*b)[last]
	(*b)[last] = deadline{}
	*b = (*b)[:last]
	return x
}
