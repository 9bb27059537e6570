package procnode

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sort"
	"time"
)

// logOptions are those of the API's pods/log.
type logOptions struct {
	ctx        context.Context // ends a follow; nil when not following
	follow     bool
	tail       *int64 // lines; nil is all
	since      time.Time
	limit      *int64 // bytes
	timestamps bool
}

// logReader reads a logFile from some line on. When it follows, Read waits for
// more until the log is finished or the context ends.
type logReader struct {
	log         *logFile
	options     logOptions
	data, index *os.File
	offset      int64 // of the next byte
	line        int64 // of the next index entry
	left        int64 // bytes that may still be returned
	prefix      []byte

	// With time stamps every line is a piece of its own: a call of the system
	// for each, and a stamp written out, would cost more than all the rest.
	entries block // of the index
	text    block // of the data
	stamp   []byte
	stampOf int64 // nanoseconds
}

// block is a part of a file that has been read already.
type block struct {
	at    int64
	bytes []byte
}

const blockSize = 64 << 10

// read returns what the file has from offset on, at least one byte and not
// beyond end; the file does not change below end.
func (b *block) read(file *os.File, offset, end int64) ([]byte, error) {
	if offset < b.at || offset >= b.at+int64(len(b.bytes)) {
		if b.bytes == nil {
			b.bytes = make([]byte, blockSize)
		}
		n, err := file.ReadAt(b.bytes[:min(blockSize, end-offset)], offset)
		if n == 0 {
			b.bytes = b.bytes[:0]
			return nil, err
		}
		b.at, b.bytes = offset, b.bytes[:n]
	}
	return b.bytes[offset-b.at:], nil
}

const noLimit = int64(^uint64(0) >> 1)

func (l *logFile) open(options logOptions) (*logReader, error) {
	data, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("open the container's log: %w", err)
	}
	index, err := os.Open(l.path + ".index")
	if err != nil {
		data.Close()
		return nil, fmt.Errorf("open the index of the container's log: %w", err)
	}
	r := &logReader{log: l, options: options, data: data, index: index, left: noLimit}
	if options.limit != nil {
		r.left = *options.limit
	}
	size, lines := l.snapshot()
	if options.tail != nil && *options.tail < lines {
		r.line = lines - max(*options.tail, 0)
	}
	if !options.since.IsZero() {
		first := sort.Search(int(lines-r.line), func(i int) bool {
			_, at, err := r.entry(r.line + int64(i))
			return err == nil && !at.Before(options.since)
		})
		r.line += int64(first)
	}
	r.offset = size // nothing yet: what comes later follows
	if r.line < lines {
		if r.offset, _, err = r.entry(r.line); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func (r *logReader) entry(line int64) (offset int64, at time.Time, err error) {
	var raw [entrySize]byte
	if _, err := r.index.ReadAt(raw[:], line*entrySize); err != nil {
		return 0, time.Time{}, fmt.Errorf("read line %d of the log's index: %w", line, err)
	}
	offset, nanoseconds := entryOf(raw[:])
	return offset, time.Unix(0, nanoseconds), nil
}

func entryOf(raw []byte) (offset, nanoseconds int64) {
	return int64(binary.BigEndian.Uint64(raw[:8])), int64(binary.BigEndian.Uint64(raw[8:16]))
}

// Read implements io.Reader.
func (r *logReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	for {
		n, err := r.available(p)
		if n > 0 || err != nil {
			r.left -= int64(n)
			return n, err
		}
		if !r.wait() {
			return 0, io.EOF
		}
	}
}

// wait returns true when there is more to read.
func (r *logReader) wait() bool {
	r.log.mu.Lock()
	more, finished, changed := r.log.size > r.offset, r.log.finished, r.log.changed
	r.log.mu.Unlock()
	if more || finished || !r.options.follow {
		return more
	}
	select {
	case <-changed:
		return true
	case <-r.options.ctx.Done():
		return false
	}
}

// available copies what is there without waiting.
func (r *logReader) available(p []byte) (int, error) {
	size, lines := r.log.snapshot()
	if !r.options.timestamps {
		return r.copy(p, size)
	}
	total := 0
	for total < len(p) {
		if len(r.prefix) > 0 {
			n := copy(p[total:], r.prefix)
			r.prefix = r.prefix[n:]
			total += n
			continue
		}
		if r.offset >= size {
			break
		}
		end := size
		if r.line < lines {
			raw, err := r.entries.read(r.index, r.line*entrySize, lines*entrySize)
			if err != nil {
				return total, fmt.Errorf("read line %d of the log's index: %w", r.line, err)
			}
			start, at := entryOf(raw)
			if start == r.offset {
				r.prefix = r.stampFor(at)
				r.line++
				continue
			}
			end = start
		}
		text, err := r.text.read(r.data, r.offset, size)
		n := copy(p[total:], text[:min(int64(len(text)), end-r.offset)])
		r.offset += int64(n)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// stampFor returns what stands before a line. Many come at once.
func (r *logReader) stampFor(at int64) []byte {
	if r.stamp == nil || at != r.stampOf {
		r.stamp = append(time.Unix(0, at).UTC().AppendFormat(r.stamp[:0], timestampFormat), ' ')
		r.stampOf = at
	}
	return r.stamp
}

// timestampFormat is what the API uses: nanoseconds, not trimmed.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

func (r *logReader) copy(p []byte, end int64) (int, error) {
	if int64(len(p)) > end-r.offset {
		p = p[:max(end-r.offset, 0)]
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.data.ReadAt(p, r.offset)
	r.offset += int64(n)
	if err == io.EOF && n > 0 {
		err = nil
	}
	return n, err
}

// Close closes the reader.
func (r *logReader) Close() error {
	r.index.Close()
	return r.data.Close()
}
