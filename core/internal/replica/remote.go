package replica

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// errBroken: the leader's answer broke off.
var errBroken = errors.New("the leader's answer broke off")

// request asks the leader for a log as events, whose ids are positions.
func (l *Logs) request(ctx context.Context, v lease.View, a process.Attempt, o logs.FollowOptions) (io.ReadCloser, error) {
	q := url.Values{"attempt": {strconv.Itoa(int(a.Number))}, "follow": {strconv.FormatBool(o.Follow)}}
	if o.Container != "" {
		q.Set("container", o.Container)
	}
	if o.AllContainers {
		q.Set("all_containers", "true")
	}
	if o.Pod != "" {
		q.Set("pod", o.Pod)
	}
	if o.Restart != nil {
		q.Set("restart", strconv.Itoa(int(*o.Restart)))
	}
	if !o.Since.IsZero() && o.After == (logs.Cursor{}) {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	if o.Tail != nil && o.After == (logs.Cursor{}) {
		q.Set("tail", strconv.FormatInt(*o.Tail, 10))
	}
	address := strings.TrimSuffix(v.Address, "/") + "/api/v1/versions/" + url.PathEscape(a.VersionID) + "/logs?" + q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: its address: %w", ErrNoLeader, err)
	}
	for _, name := range []string{"Authorization", "Cookie", "X-Request-Id"} {
		r.Header[name] = caller(ctx)[name]
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set(HeaderForwarded, l.o.Self)
	if o.After != (logs.Cursor{}) {
		r.Header.Set("Last-Event-ID", o.After.String())
	}
	resp, err := l.o.Transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refused(resp)
}

// refused is the leader's refusal as this server's own.
func refused(resp *http.Response) error {
	var said struct {
		Code, Detail string
		Errors       []problem.Field
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil {
		err = json.Unmarshal(raw, &said)
	}
	if err != nil || said.Code == "" || said.Code == string(problem.Internal) {
		return fmt.Errorf("the leader answered with status %d: %s", resp.StatusCode, raw)
	}
	return &problem.Error{Code: problem.Code(said.Code), Detail: said.Detail, Fields: said.Errors}
}

// decode turns the events back into what they were made of. What ends without an end is broken.
func decode(body io.Reader, alive chan<- struct{}, yield func(logs.Chunk, error) bool) {
	in := bufio.NewReaderSize(body, 64<<10)
	var id, name string
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			yield(logs.Chunk{}, fmt.Errorf("%w: %w", errBroken, err))
			return
		}
		select {
		case alive <- struct{}{}:
		default:
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		field, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case len(line) == 0:
			if name == "" {
				continue
			}
			c, err := chunk(id, name, data)
			if err != nil {
				yield(logs.Chunk{}, err)
				return
			}
			if !yield(c, nil) || c.Kind == logs.ChunkEnd {
				return
			}
			id, name, data = "", "", data[:0]
		case line[0] == ':':
			if !yield(logs.Chunk{Kind: logs.ChunkHeartbeat}, nil) {
				return
			}
		case string(field) == "id":
			id = string(value)
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			data = append(data, value...) // it is JSON, which has no line ends
		}
	}
}

// chunk reads one event.
func chunk(id, name string, data []byte) (c logs.Chunk, err error) {
	if c.Cursor, err = logs.ParseCursor(id); err != nil {
		return c, fmt.Errorf("%w: %w", errBroken, err)
	}
	c.Kind = logs.ChunkKind(name)
	switch c.Kind {
	case logs.ChunkData:
		var v logs.LogEvent
		err = json.Unmarshal(data, &v)
		if c.Data = v.Raw; c.Data == nil {
			c.Data = []byte(v.Text)
		}
	case logs.ChunkPod:
		var v logs.PodEvent
		err = json.Unmarshal(data, &v)
		c.PodNumber = v.Number
	case logs.ChunkNote:
		var v logs.NoteEvent
		err = json.Unmarshal(data, &v)
		c.State, c.Code, c.Note = v.State, v.Code, v.Note
	case logs.ChunkEnd:
		c.End = &logs.End{}
		err = json.Unmarshal(data, c.End)
		c.State, c.Code, c.Note = c.End.State, c.End.Code, c.End.Reason
	default: // "error"
		return c, errBroken
	}
	if err != nil {
		return c, fmt.Errorf("%w: event %s: %w", errBroken, name, err)
	}
	return c, nil
}
