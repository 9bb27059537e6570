package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// message is one server-sent event.
type message struct {
	id, event string
	data      []byte
}

// readMessages calls f for each event until the stream ends or f says stop.
func readMessages(r io.Reader, f func(message) (stop bool)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var m message
	var data bytes.Buffer
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF // a stream ends with its end event, not before
			}
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if data.Len() > 0 {
				m.data = bytes.TrimSuffix(data.Bytes(), []byte("\n"))
				if f(m) {
					return nil
				}
			}
			m = message{id: m.id}
			data.Reset()
			continue
		}
		field, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			data.WriteString(value)
			data.WriteByte('\n')
		}
	}
}

// Reconnecting.
const (
	retryFirst = 200 * time.Millisecond
	retryLast  = 5 * time.Second
	patience   = 10 * time.Minute // without an answer
	silence    = 45 * time.Second // three heartbeats: the connection is dead
)

// errGone says that the server was out of reach for too long.
var errGone = errors.New("the server has been out of reach for too long")

// follow reads a stream of events and opens it again behind the last one seen when it breaks, until f says stop or a
// refusal comes. lost is told of the first break of each.
func follow(ctx context.Context, open func(ctx context.Context, lastID string) (*http.Response, error), lost func(error), f func(message) (stop bool)) error {
	last, pause, since := "", retryFirst, time.Now()
	quiet := true
	for {
		progress := false
		done, err := once(ctx, last, open, func(m message) bool {
			if m.id != "" {
				last = m.id
			}
			progress = true
			return f(m)
		})
		var refused *apiError
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && refused.status < 500:
			return err
		case progress:
			pause, since, quiet = retryFirst, time.Now(), true
		case time.Since(since) > patience:
			return errors.Join(errGone, err)
		}
		if quiet && lost != nil && !progress {
			lost(err)
			quiet = false
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + rand.N(pause)):
		}
		pause = min(2*pause, retryLast)
	}
}

// once reads one connection. done says that nothing follows.
func once(ctx context.Context, last string, open func(context.Context, string) (*http.Response, error), f func(message) bool) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := open(ctx, last)
	if err != nil {
		return false, unreachable(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return true, nil
	case resp.StatusCode != http.StatusOK:
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return false, failure(resp, raw)
	}
	// A connection without heartbeats is dead although nothing says so.
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	err = readMessages(&touching{r: resp.Body, touch: func() { watchdog.Reset(silence) }}, func(m message) bool {
		done = f(m)
		return done
	})
	return done, err
}

// touching calls touch at every read that gives something.
type touching struct {
	r     io.Reader
	touch func()
}

func (t *touching) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.touch()
	}
	return n, err
}
