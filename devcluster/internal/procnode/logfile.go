package procnode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// logFile takes the output of one run of a container: the bytes as they are in
// one file, and in a second one where each line starts and when it came. Any
// bytes and lines of any length survive, reading without times is copying, and
// a tail or a point in time is found without reading what is before it.
type logFile struct {
	path string

	mu       sync.Mutex
	size     int64 // bytes readable
	lines    int64 // index entries readable
	finished bool
	// changed is closed and replaced when something above changes.
	changed chan struct{}

	data, index *os.File // while the container runs
	midLine     bool     // the last byte was no newline; for copyFrom only
}

// An index entry is the offset of a line's first byte and the time at which it
// arrived in nanoseconds since 1970, 8 bytes each.
const entrySize = 16

func newLogFile(path string) (*logFile, error) {
	data, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the container's log: %w", err)
	}
	index, err := os.OpenFile(path+".index", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		data.Close()
		return nil, fmt.Errorf("make the index of the container's log: %w", err)
	}
	return &logFile{path: path, data: data, index: index, changed: make(chan struct{})}, nil
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyFrom appends all of r. Only one call may run at a time.
func (l *logFile) copyFrom(r io.Reader) {
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	for {
		n, err := r.Read(buffer[:])
		if n > 0 {
			if err := l.append(buffer[:n], time.Now()); err != nil {
				// The reader goes on, or the container would block for ever.
				logf("%s: write: %v", l.path, err)
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *logFile) append(chunk []byte, now time.Time) error {
	size, lines := l.snapshot()
	if _, err := l.data.WriteAt(chunk, size); err != nil {
		return err
	}
	var entries []byte
	for at := 0; at < len(chunk); {
		if !l.midLine {
			entries = binary.BigEndian.AppendUint64(entries, uint64(size)+uint64(at))
			entries = binary.BigEndian.AppendUint64(entries, uint64(now.UnixNano()))
		}
		newline := bytes.IndexByte(chunk[at:], '\n')
		l.midLine = newline < 0
		if l.midLine {
			break
		}
		at += newline + 1
	}
	if _, err := l.index.WriteAt(entries, lines*entrySize); err != nil {
		return err
	}
	l.change(func() {
		l.size = size + int64(len(chunk))
		l.lines = lines + int64(len(entries)/entrySize)
	})
	return nil
}

// finish says that nothing will be added.
func (l *logFile) finish() {
	l.data.Close()
	l.index.Close()
	l.change(func() { l.finished = true })
}

func (l *logFile) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *logFile) snapshot() (size, lines int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.lines
}

// remove deletes the files. Readers that have them open go on.
func (l *logFile) remove() {
	os.Remove(l.path)
	os.Remove(l.path + ".index")
}

// lastBytes returns the end of the log: at most so many lines and bytes.
func (l *logFile) lastBytes(lines, most int64) string {
	reader, err := l.open(logOptions{tail: &lines})
	if err != nil {
		return ""
	}
	defer reader.Close()
	if size, _ := l.snapshot(); size-reader.offset > most {
		reader.offset = size - most
	}
	text, _ := io.ReadAll(reader)
	return string(text)
}
