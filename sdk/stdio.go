package sdk

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
	"sync"
)

// handshakeLine is go-plugin's one line on stdout, wherever it begins.
var handshakeLine = regexp.MustCompile(`\d+\|\d+\|(unix|tcp)\|[^|]*\|grpc\|\S*$`)

// stdio keeps everything but the handshake away from stdout, on which one stray line would break the start. From
// claimStdio on, file descriptor 1 is stderr, os.Stdout is a pipe out of which only the handshake line passes to the
// real stdout, and after restore os.Stdout is stderr too. What is printed before main cannot be helped.
type stdio struct {
	real   *os.File // the stdout that the host reads
	stderr *os.File
	pipe   *os.File
	once   sync.Once
	copied chan struct{}
}

func claimStdio() (*stdio, error) {
	real, err := takeStdout()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stdio{real: real, stderr: os.Stderr, pipe: w, copied: make(chan struct{})}
	os.Stdout = w
	go s.copy(r)
	return s, nil
}

// copy passes the handshake line to the real stdout and everything else to stderr. Lines of any length are passed in
// pieces, so nothing accumulates.
func (s *stdio) copy(r io.Reader) {
	defer close(s.copied)
	reader := bufio.NewReaderSize(r, 64<<10)
	done := false
	for {
		line, err := reader.ReadSlice('\n')
		if at := handshakeLine.FindIndex(trim(line)); at != nil && !done {
			done = true
			s.write(s.stderr, line[:at[0]])
			s.write(s.real, line[at[0]:])
		} else {
			s.write(s.stderr, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func trim(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}

// write ignores errors: when stderr or stdout is gone so is the host, and the watch ends the process.
func (s *stdio) write(f *os.File, b []byte) {
	if len(b) > 0 {
		_, _ = f.Write(b)
	}
}

// restore points os.Stdout and os.Stderr at the real stderr, once.
func (s *stdio) restore() {
	s.once.Do(func() {
		os.Stdout = s.stderr
		os.Stderr = s.stderr
	})
}

// finish lets what was written pass before the process ends.
func (s *stdio) finish() {
	// It is a pipe of our own that nobody else closes.
	_ = s.pipe.Close()
	<-s.copied
}
