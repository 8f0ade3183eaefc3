package cluster

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"
)

// firstByteWait bounds how long a silent connection is kept before it says which protocol it speaks.
const firstByteWait = 2 * time.Minute

// split tells TLS from plain HTTP on one listener by the first byte of each
// connection: a TLS record of a handshake starts with 0x16, no HTTP method does.
type split struct {
	net.Listener
	tls, plain *branch
	closed     chan struct{}
	once       sync.Once
	wg         sync.WaitGroup
	mu         sync.Mutex
	undecided  map[net.Conn]struct{} // guarded by mu
}

type branch struct {
	s  *split
	ch chan net.Conn
}

func newSplit(l net.Listener) *split {
	s := &split{Listener: l, closed: make(chan struct{}), undecided: map[net.Conn]struct{}{}}
	s.tls, s.plain = &branch{s, make(chan net.Conn)}, &branch{s, make(chan net.Conn)}
	return s
}

// run accepts until the listener is closed.
func (s *split) run() error {
	defer s.wg.Wait()
	for {
		c, err := s.Accept()
		if err != nil {
			select {
			case <-s.closed:
				return nil
			default:
			}
			var tmp interface{ Temporary() bool }
			if errors.As(err, &tmp) && tmp.Temporary() {
				time.Sleep(5 * time.Millisecond) // out of file descriptors: give others time to close some
				continue
			}
			s.Close()
			return err
		}
		s.mu.Lock()
		s.undecided[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.decide(c)
		})
	}
}

func (s *split) decide(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(firstByteWait))
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	s.mu.Lock()
	delete(s.undecided, c)
	s.mu.Unlock()
	if err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	to := s.plain
	if first[0] == 0x16 {
		to = s.tls
	}
	select {
	case to.ch <- &peeked{Conn: c, r: r}:
	case <-s.closed:
		c.Close()
	}
}

func (s *split) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		err = s.Listener.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.undecided {
			c.Close()
		}
	})
	return err
}

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.ch:
		return c, nil
	case <-b.s.closed:
		return nil, net.ErrClosed
	}
}

func (b *branch) Close() error   { return b.s.Close() }
func (b *branch) Addr() net.Addr { return b.s.Addr() }

// peeked gives back the byte that was looked at.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) {
	if p.r != nil {
		if p.r.Buffered() > 0 {
			return p.r.Read(b)
		}
		p.r = nil
	}
	return p.Conn.Read(b)
}
