package faultproxy

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"sync"
	"time"
)

// Reorder lets requests overtake each other: the first of two waits until the second has been answered, or for the limit.
func Reorder(limit time.Duration) Fault { return (&pairs{limit: limit}).serve }

type pairs struct {
	limit time.Duration

	mu    sync.Mutex
	first chan struct{} // closed when the second has been answered; nil: nobody waits
}

func (p *pairs) serve(w http.ResponseWriter, r *http.Request, forward Forward) {
	p.mu.Lock()
	overtaken := p.first
	own := make(chan struct{})
	if p.first = own; overtaken != nil {
		p.first = nil
	}
	p.mu.Unlock()
	if overtaken != nil {
		defer close(overtaken)
		forward(w, nil)
		return
	}
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	select {
	case <-own:
	case <-timer.C:
		p.leave(own)
	case <-r.Context().Done():
		p.leave(own)
		return
	}
	forward(w, nil)
}

// leave takes the one that waits away, unless somebody has come for it.
func (p *pairs) leave(own chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == own {
		p.first = nil
	}
}

func (p *pairs) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first != nil
}

// ReorderEvents swaps neighbouring events of a watch, in JSON and in protobuf: the first comes after the second, the third
// after the fourth. An event without a successor is held until one comes.
func ReorderEvents() Fault {
	return func(w http.ResponseWriter, _ *http.Request, forward Forward) {
		forward(w, func(out io.Writer) io.Writer { return &swapper{out: out} })
	}
}

// swapper cuts a stream into events and gives them in pairs, the second first.
type swapper struct {
	out  io.Writer
	rest []byte
	held []byte // the first of a pair; nil: none
}

func (s *swapper) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		n := event(s.rest)
		if n == 0 {
			return len(b), nil
		}
		one := bytes.Clone(s.rest[:n])
		s.rest = s.rest[n:]
		if s.held == nil {
			s.held = one
			continue
		}
		pair := append(one, s.held...)
		s.held = nil
		if _, err := s.out.Write(pair); err != nil {
			return 0, err
		}
	}
}

// event is the length of the first event, 0 when it is not complete: a line of JSON, or protobuf behind its length in four
// bytes, of which the first is never an opening brace.
func event(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	if b[0] == '{' {
		return bytes.IndexByte(b, '\n') + 1
	}
	if len(b) < 4 {
		return 0
	}
	if n := 4 + int(binary.BigEndian.Uint32(b)); len(b) >= n {
		return n
	}
	return 0
}
