package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
)

// tailOffset is where the last n lines of a part begin. A last line without its end counts as a line.
func tailOffset(ctx context.Context, r *Reader, v *view, p *part, n int64) (int64, error) {
	readAt := func(b []byte, off int64) error {
		body, err := r.o.Archive.Open(ctx, v.m.AttemptID, p.pod, p.c.Name, p.c.Restart, off)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.ReadFull(body, b)
		return err
	}
	size := p.c.Bytes
	if st := v.streams[p.key()]; st != nil {
		size = st.size.Load()
		fromArchive := readAt
		readAt = func(b []byte, off int64) error {
			_, err := io.ReadFull(io.NewSectionReader(st, off, int64(len(b))), b)
			if errors.Is(err, os.ErrClosed) {
				return fromArchive(b, off)
			}
			return err
		}
	}
	if n <= 0 {
		return size, nil
	}
	block := make([]byte, 64<<10)
	end := size
	for end > 0 {
		b := block[:min(int64(len(block)), end)]
		start := end - int64(len(b))
		if err := readAt(b, start); err != nil {
			return 0, err
		}
		if end == size && b[len(b)-1] == '\n' {
			b = b[:len(b)-1] // it ends the last line and begins none
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if n--; n == 0 {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}
