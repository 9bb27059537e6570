package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	maxFirstLine = 16 << 10 // of stdout; a handshake has about 1 KiB
	maxLine      = 8 << 10  // of stderr
	keptLines    = 20
	shownLines   = 3
	maxShown     = 400 // bytes a line in messages

	// A plugin may log burstLines at once and linesASecond in the long run; what is more is counted and left out.
	burstLines   = 300
	linesASecond = 10
)

// output reads what one process prints. The first line of stdout is the handshake and the rest of stdout is dropped.
// Lines of stderr go into the log under the plugin's name, and the last of them are kept for messages.
type output struct {
	log    hclog.Logger
	redact *redactor

	first     chan struct{} // closed when the first line of stdout is there, or stdout has ended
	firstOnce sync.Once

	mu       sync.Mutex
	line     []byte // first line of stdout, so far
	complete bool   // ended by a newline
	kept     []string
	panicked string // first line of a Go panic

	tokens   float64 // lines that may be logged now
	filledAt time.Time
	dropped  int // lines left out since the last that was logged
}

func newOutput(log hclog.Logger, redact *redactor) *output {
	return &output{log: log, redact: redact, first: make(chan struct{})}
}

// read reads both pipes until they end and closes the returned channel then.
func (o *output) read(stdout, stderr io.Reader) <-chan struct{} {
	var both sync.WaitGroup
	both.Go(func() { o.readStdout(stdout) })
	both.Go(func() { o.readLines(stderr) })
	read := make(chan struct{})
	go func() {
		both.Wait()
		o.flush()
		close(read)
	}()
	return read
}

func (o *output) readStdout(r io.Reader) {
	defer o.firstOnce.Do(func() { close(o.first) })
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if !o.takeFirst(buf[:n]) {
			o.firstOnce.Do(func() { close(o.first) })
		}
		if err != nil {
			return
		}
	}
}

// takeFirst adds to the first line and says whether more of it is wanted.
func (o *output) takeFirst(b []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete || len(o.line) >= maxFirstLine {
		return false
	}
	for i, c := range b {
		if c == '\n' {
			o.line, o.complete = append(o.line, b[:i]...), true
			return false
		}
	}
	o.line = append(o.line, b[:min(len(b), maxFirstLine-len(o.line))]...)
	return len(o.line) < maxFirstLine
}

// handshake is the first line with its newline, or nothing when there is none.
func (o *output) handshake() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.line) == 0 {
		return ""
	}
	return string(o.line) + "\n"
}

// readLines reads lines of any length; what is longer than maxLine is cut.
func (o *output) readLines(r io.Reader) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := br.ReadSlice('\n')
		if len(line) > 0 {
			o.take(strings.TrimRight(string(line), "\r\n"))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// strayStderr takes what go-plugin brings from the plugin's os.Stderr after the handshake. It never fails.
type strayStderr struct{ *output }

// Write splits the text into lines; what arrives in two pieces is two lines.
func (o strayStderr) Write(b []byte) (int, error) {
	o.readLines(bytes.NewReader(b))
	return len(b), nil
}

// strayStdout takes what go-plugin brings from the plugin's os.Stdout after the handshake. It never fails.
type strayStdout struct{ *output }

// Write logs at level debug: stdout is nothing that a plugin should use.
func (o strayStdout) Write(b []byte) (int, error) {
	if !o.log.IsDebug() {
		return len(b), nil
	}
	if allowed, _ := o.allow(time.Now()); allowed {
		o.log.Debug("the plugin printed to stdout", "text", o.redact.clean(cut(string(b), maxShown)))
	}
	return len(b), nil
}

// take keeps one line of stderr and logs it, as hclog JSON when it is that.
func (o *output) take(raw string) {
	if strings.TrimSpace(raw) == "" {
		return
	}
	level, message, args := parseLine(raw)
	message = o.redact.clean(message)
	for i, v := range args {
		if i%2 == 1 {
			args[i] = o.redact.clean(fmt.Sprint(v))
		}
	}
	o.mu.Lock()
	if o.panicked == "" && (strings.HasPrefix(message, "panic: ") || strings.HasPrefix(message, "fatal error: ")) {
		o.panicked = message
	}
	if o.panicked != "" && args == nil {
		level = hclog.Error // the trace belongs to the panic
	}
	text := message
	for i := 0; i+1 < len(args); i += 2 {
		text += fmt.Sprintf(" %s=%s", args[i], args[i+1])
	}
	if level >= hclog.Info || args == nil {
		o.kept = append(o.kept, cut(text, maxShown))
		if len(o.kept) > keptLines {
			o.kept = slices.Delete(o.kept, 0, 1)
		}
	}
	o.mu.Unlock()
	if level < o.log.GetLevel() {
		return
	}
	allowed, missed := o.allow(time.Now())
	if !allowed {
		return
	}
	if missed > 0 {
		o.log.Warn("lines of the plugin were left out, because it logs too much", "lines", missed)
	}
	o.log.Log(level, message, args...)
}

// allow says whether one more line may go into the log, and if so how many were left out before it.
func (o *output) allow(now time.Time) (ok bool, missed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.filledAt.IsZero() {
		o.tokens, o.filledAt = burstLines, now
	}
	o.tokens = min(burstLines, o.tokens+now.Sub(o.filledAt).Seconds()*linesASecond)
	o.filledAt = now
	if o.tokens < 1 {
		o.dropped++
		return false, 0
	}
	o.tokens--
	missed, o.dropped = o.dropped, 0
	return true, missed
}

// flush reports what was left out last.
func (o *output) flush() {
	o.mu.Lock()
	missed := o.dropped
	o.dropped = 0
	o.mu.Unlock()
	if missed > 0 {
		o.log.Warn("lines of the plugin were left out, because it logs too much", "lines", missed)
	}
}

// parseLine reads a line of hclog's JSON. Any other line is a message at level info, without arguments.
func parseLine(raw string) (level hclog.Level, message string, args []any) {
	var entry map[string]any
	if !strings.HasPrefix(raw, "{") || json.Unmarshal([]byte(raw), &entry) != nil {
		return hclog.Info, raw, nil
	}
	message, isText := entry["@message"].(string)
	name, _ := entry["@level"].(string)
	if level = hclog.LevelFromString(name); !isText || level == hclog.NoLevel {
		return hclog.Info, raw, nil
	}
	args = []any{}
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if !strings.HasPrefix(key, "@") {
			args = append(args, key, entry[key])
		}
	}
	return level, message, args
}

// last is what the process said at last, for messages: the panic, else the last lines.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.panicked != "" {
		return cut(o.panicked, maxShown)
	}
	return strings.Join(o.kept[max(0, len(o.kept)-shownLines):], " | ")
}

// printed is the first line of stdout as far as it came, for messages: cut, and without secrets.
func (o *output) printed() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cut(o.redact.clean(strings.TrimSpace(string(o.line))), maxShown/2)
}
