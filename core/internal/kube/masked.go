package kube

import (
	"bytes"
	"io"
)

// maxError bounds the text of an error that is looked through.
const maxError = 1 << 20

// shortestSecret is the length below which a token is none: it would stand in other words by chance, and the answer could
// not be read any more without it.
const shortestSecret = 8

// masked is the body of a refusal without the token that was sent, for a careless server repeats it, and what it says
// goes into reasons, events and the log.
type masked struct {
	io.ReadCloser
	token string
	text  io.Reader // nil: not read yet
}

func (m *masked) Read(p []byte) (int, error) {
	if m.text == nil {
		raw, err := io.ReadAll(io.LimitReader(m.ReadCloser, maxError))
		if err != nil {
			return 0, err
		}
		m.text = bytes.NewReader(bytes.ReplaceAll(raw, []byte(m.token), []byte("********")))
	}
	return m.text.Read(p)
}
