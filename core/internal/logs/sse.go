package logs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"sync"
	"unicode/utf8"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// SSEWriter writes server-sent events. Whatever the id, name and data hold, one call makes exactly one event. Not safe
// for concurrent use.
type SSEWriter struct {
	w io.Writer
}

// frames are where events are put together. A thousand silent streams hold none.
var frames = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// NewSSEWriter writes to w; flushing is the caller's.
func NewSSEWriter(w io.Writer) *SSEWriter { return &SSEWriter{w: w} }

// Event writes one event. An empty id leaves the reader's last id as it is; an empty name means "message". Line ends in
// data (LF, CR and CRLF, as the standard counts them) become separate data lines, which the reader joins with LF; they
// are dropped from id and name, as is NUL.
func (s *SSEWriter) Event(id, name string, data []byte) error {
	buf := frames.Get().(*bytes.Buffer)
	defer frames.Put(buf)
	buf.Reset()
	field(buf, "id: ", id)
	field(buf, "event: ", name)
	for {
		i := bytes.IndexAny(data, "\r\n")
		buf.WriteString("data: ")
		if i < 0 {
			buf.Write(data)
			break
		}
		buf.Write(data[:i])
		buf.WriteByte('\n')
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
	buf.WriteString("\n\n")
	_, err := s.w.Write(buf.Bytes())
	return err
}

func field(buf *bytes.Buffer, name, value string) {
	if value == "" {
		return
	}
	buf.WriteString(name)
	for i := range len(value) {
		if c := value[i]; c != '\r' && c != '\n' && c != 0 {
			buf.WriteByte(c)
		}
	}
	buf.WriteByte('\n')
}

// Comment writes a line that readers ignore; it keeps connections and proxies awake.
func (s *SSEWriter) Comment(text string) error {
	var buf bytes.Buffer
	field(&buf, ": ", text)
	buf.WriteByte('\n')
	_, err := s.w.Write(buf.Bytes())
	return err
}

// AttemptEvent is the data of an "attempt" event.
type AttemptEvent struct {
	Attempt   int32  `json:"attempt"` // its number within the version, from 1
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id,omitempty"`
}

// LogEvent is the data of a "log" event.
type LogEvent struct {
	// Text is the output with bytes that are not UTF-8 replaced by U+FFFD. A character is never split between events.
	Text string `json:"text"`
	// Raw is the same output untouched; set only where Text had to replace something.
	Raw []byte `json:"raw,omitempty"` // base64 in JSON
}

// PodEvent is the data of a "pod" event.
type PodEvent struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Restart   int32  `json:"restart,omitempty"`
	Number    int    `json:"number"` // of the pod within the attempt, from 1
}

// NoteEvent is the data of a "note" event.
type NoteEvent struct {
	State process.State `json:"state,omitempty"`
	Code  string        `json:"code,omitempty"`
	Note  string        `json:"note"`
}

// ErrorEvent is the data of the "error" event with which WriteSSE reports that the log broke off.
type ErrorEvent struct {
	Message string `json:"message"`
}

// WriteSSE writes a log as server-sent events: "pod", "log", "note" and "end" with the JSON forms of PodEvent, LogEvent,
// NoteEvent and End, heartbeats as comments. The ids of the events are cursors, so that Last-Event-ID resumes without gap
// or double. It begins with a comment, so that a reader of a silent log sees an open stream at once, and flushes after
// every event. An error of the log itself is written as an "error" event and returned; its text is then for the server's
// log, the event holds only that the log broke off.
func WriteSSE(w io.Writer, flush func() error, seq iter.Seq2[Chunk, error]) error {
	s := NewSSEWriter(w)
	if err := s.Comment("log"); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	e := sseEncoder{s: s}
	for c, err := range seq {
		if err == nil {
			err = e.chunk(c)
		} else {
			data, _ := json.Marshal(ErrorEvent{Message: "the log cannot be read further now; reconnect to resume"})
			_ = s.Event("", "error", data)
			_ = flush()
		}
		if err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// sseEncoder turns chunks into events. It holds back the beginning of a character whose rest has not come yet; the id of
// the event before it then stands in front of that character, so that a resume sends it whole.
type sseEncoder struct {
	s    *SSEWriter
	held []byte
	at   Cursor // behind held
}

func (e *sseEncoder) chunk(c Chunk) error {
	if c.Kind != ChunkData {
		if c.Kind == ChunkHeartbeat {
			return e.s.Comment("still here")
		}
		if c.Kind != ChunkNote {
			if err := e.release(); err != nil {
				return err
			}
		}
	}
	switch c.Kind {
	case ChunkData:
		data := c.Data
		if len(e.held) > 0 {
			data = append(e.held, data...)
		}
		n := len(data) - incomplete(data)
		at := c.Cursor
		at.Offset -= int64(len(data) - n)
		if n > 0 {
			if err := e.log(at, data[:n]); err != nil {
				return err
			}
		}
		e.held, e.at = bytes.Clone(data[n:]), c.Cursor
		return nil
	case ChunkPod:
		return e.json(c.Cursor, "pod", PodEvent{Pod: c.Cursor.Pod, Container: c.Cursor.Container, Restart: c.Cursor.Restart, Number: c.PodNumber})
	case ChunkNote:
		return e.json(Cursor{}, "note", NoteEvent{State: c.State, Code: c.Code, Note: c.Note})
	case ChunkAttempt:
		a := c.Attempt
		return e.json(Cursor{}, "attempt", AttemptEvent{Attempt: a.Number, ID: a.ID, ClusterID: a.ClusterID})
	case ChunkEnd:
		return e.json(c.Cursor, "end", c.End)
	default:
		return fmt.Errorf("unknown kind of log chunk %q", c.Kind)
	}
}

// release writes what is held: its rest will not come.
func (e *sseEncoder) release() error {
	if len(e.held) == 0 {
		return nil
	}
	held := e.held
	e.held = nil
	return e.log(e.at, held)
}

func (e *sseEncoder) log(at Cursor, data []byte) error {
	v := LogEvent{Text: string(bytes.ToValidUTF8(data, []byte("\uFFFD")))}
	if !utf8.Valid(data) {
		v.Raw = data
	}
	return e.json(at, "log", v)
}

// json writes v as the data of an event. JSON escapes CR, LF and the characters of HTML, so that the text can neither end
// the event nor a script element.
func (e *sseEncoder) json(at Cursor, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s event: %w", name, err)
	}
	return e.s.Event(at.String(), name, data)
}

// incomplete counts the bytes at the end of p that may be the beginning of a character.
func incomplete(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// WriteText writes a log as plain text: exactly the containers' bytes, and before the second and each later container
// instance one line "==> pod …, container … <==", with headed also before the first. The log of a single container is thus
// byte-identical to what it printed. Each attempt of All begins with "==> attempt … <==". It flushes after every chunk.
func WriteText(w io.Writer, flush func() error, headed bool, seq iter.Seq2[Chunk, error]) error {
	first, last := !headed, byte('\n')
	head := func(format string, args ...any) error {
		line := "==> " + fmt.Sprintf(format, args...) + " <==\n"
		if last != '\n' {
			line = "\n" + line
		}
		last = '\n'
		_, err := io.WriteString(w, line)
		return err
	}
	for c, err := range seq {
		if err != nil {
			return err
		}
		switch c.Kind {
		case ChunkData:
			if _, err := w.Write(c.Data); err != nil {
				return err
			}
			last = c.Data[len(c.Data)-1]
		case ChunkPod:
			if first {
				first = false
				continue
			}
			if err := head("pod %s, container %s", c.Cursor.Pod, instance(c.Cursor.Container, c.Cursor.Restart)); err != nil {
				return err
			}
		case ChunkAttempt:
			first = !headed
			if err := head("attempt %d", c.Attempt.Number); err != nil {
				return err
			}
		default:
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

func instance(container string, restart int32) string {
	if restart == 0 {
		return container
	}
	return fmt.Sprintf("%s (restart %d)", container, restart)
}
