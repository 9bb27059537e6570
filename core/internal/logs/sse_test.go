package logs

import (
	"bufio"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type sseEvent struct{ id, name, data string }

// events reads server-sent events as the standard says: CR, LF and CRLF end a line.
func events(t *testing.T, s string) (list []sseEvent) {
	t.Helper()
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	var e sseEvent
	var data []string
	lines := bufio.NewScanner(strings.NewReader(s))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if data != nil {
				e.data = strings.Join(data, "\n")
				list = append(list, e)
			}
			e, data = sseEvent{id: e.id}, nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			data = append(data, value)
		case "":
		default:
			t.Errorf("unknown field in line %q", line)
		}
	}
	return list
}

func chunks(list ...Chunk) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// dataChunks cuts s into chunks of n bytes.
func dataChunks(s string, n int) (list []Chunk) {
	at := Cursor{AttemptID: "a", Pod: "p", Container: "main"}
	list = append(list, Chunk{Kind: ChunkPod, Cursor: at, PodNumber: 1})
	for len(s) > 0 {
		part := s[:min(n, len(s))]
		s = s[len(part):]
		at.Offset += int64(len(part))
		list = append(list, Chunk{Kind: ChunkData, Cursor: at, Data: []byte(part)})
	}
	at.End = true
	return append(list, Chunk{Kind: ChunkEnd, Cursor: at, End: &End{State: process.Succeeded, Complete: true}})
}

func TestB39FramesHoldAnyBytes(t *testing.T) {
	all := strings.Repeat("a", 50) + "\xe2\x96\x88" + "\xff\xfe\x00" + "\x1b[31mred\x1b[0m" + "10%\r20%\r" +
		"\ndata: x\n\n\r\r\nid: 5\r\n\r\nevent: end\n</script>\n🪨🪨\xf0\x9f"
	for n := 1; n < 20; n++ {
		var out strings.Builder
		if err := WriteSSE(&out, func() error { return nil }, chunks(dataChunks(all, n)...)); err != nil {
			t.Fatal(err)
		}
		var raw, shown strings.Builder
		for _, e := range events(t, out.String()) {
			if e.name != "log" {
				continue
			}
			if strings.Contains(e.data, "<") {
				t.Errorf("HTML in %q", e.data)
			}
			var v LogEvent
			if err := json.Unmarshal([]byte(e.data), &v); err != nil {
				t.Fatal(err)
			}
			shown.WriteString(v.Text)
			if v.Raw != nil {
				raw.Write(v.Raw)
			} else {
				raw.WriteString(v.Text)
			}
			// A resume behind any event goes on with the very next byte.
			if c, err := ParseCursor(e.id); err != nil || int(c.Offset) != raw.Len() {
				t.Errorf("id %s after %d bytes: %v", e.id, raw.Len(), err)
			}
		}
		if raw.String() != all {
			t.Error(n, differ(raw.String(), all))
		}
		if !strings.Contains(shown.String(), "█") || !strings.Contains(shown.String(), "🪨🪨\uFFFD") {
			t.Error(n, "characters split:", shown.String())
		}
	}
}

func TestSSEWriter(t *testing.T) {
	var out strings.Builder
	s := NewSSEWriter(&out)
	for _, data := range []string{"", "a", "a\nb", "a\n", "\r", "a\r\nb\rc\n\nd", "data: x\n\nevent: y"} {
		out.Reset()
		if err := s.Event("1\r2\n3\x00", "na\nme", []byte(data)); err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		if got := events(t, out.String()); len(got) != 1 || got[0] != (sseEvent{"123", "name", want}) {
			t.Errorf("%q: %+v", data, got)
		}
	}
	out.Reset()
	_ = s.Comment("a\n\nevent: x")
	if got := events(t, out.String()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestWriteSSESaysErrors(t *testing.T) {
	bad := errors.New("secret detail")
	var out strings.Builder
	err := WriteSSE(&out, func() error { return nil }, func(yield func(Chunk, error) bool) { yield(Chunk{}, bad) })
	if !errors.Is(err, bad) || strings.Contains(out.String(), "secret") || events(t, out.String())[0].name != "error" {
		t.Error(err, out.String())
	}
	if !strings.HasPrefix(out.String(), ": ") {
		t.Error("nothing comes at once")
	}
}

func TestCursor(t *testing.T) {
	for _, c := range []Cursor{
		{}, {AttemptID: "a", Pod: "p.q", Container: "main", Offset: 1 << 40}, {AttemptID: "a", Pod: "p", Container: "c", Restart: 3, End: true},
		{AttemptID: "a", End: true},
	} {
		if got, err := ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%s: %+v, %v", c, got, err)
		}
	}
	for _, s := range []string{"x", "a/b", "a/b/c", "a/b/c@1", "a/b/c.0@-1", "a/b/c.-1@1", "a/b/c.0@x", "//.0@0", "a//.0@0", "a/b/c.0@1/2", "/end"} {
		if _, err := ParseCursor(s); !errors.Is(err, ErrCursor) {
			t.Errorf("%q was taken: %v", s, err)
		}
	}
}
