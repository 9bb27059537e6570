package logs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// spool is the local copy of one container's log while the attempt lives: a file of exactly the bytes that readers get,
// and beside it a journal of JSON lines that says how far the file can be trusted and where the cluster is to be asked
// again.
//
// The journal lags behind the file a little. After a crash the file's end beyond the journal is read from the cluster
// again and overwritten with the same bytes; only when the cluster no longer has them they are taken as they are. Check
// sums find what a power cut left unwritten. One writer; any number of readers by ReadAt up to the size they know of.
//
// The files come with the first byte: many containers print nothing.
type spool struct {
	path    string
	data    *os.File // nil: nothing was written
	journal *os.File

	size int64 // of what was written
	pos  position
	gaps []Gap
	end  *spoolEnd // nil: not ended

	times Times
	fresh []mark // not journaled yet

	journalAt int64 // where the next record goes; what a failed write left there is overwritten
	tail      int64 // size of the file as found; beyond size it holds what the journal does not vouch for
	journaled int64 // size at the last record
	crc       uint32
	at        time.Time // of the last record
}

// spoolEnd says how the log ended.
type spoolEnd struct {
	Complete bool `json:"complete"`
}

// spoolRecord is one line of the journal. It vouches for the bytes between the record before it and Size.
type spoolRecord struct {
	Size int64    `json:"size"`
	CRC  uint32   `json:"crc"`
	Pos  position `json:"pos"`
	Gap  *Gap     `json:"gap,omitempty"`
	// Times are the marks since the record before; Blind is their step when no further ones come.
	Times Times     `json:"times,omitzero"`
	Blind int64     `json:"blind,omitempty"`
	End   *spoolEnd `json:"end,omitempty"`
}

const (
	journalSuffix = ".journal"
	journalBytes  = 64 << 10
	journalEvery  = 200 * time.Millisecond
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openSpool opens the spool at path, if there is one, and finds out where it stands.
func openSpool(path string) (*spool, error) {
	s := &spool{path: path}
	err := s.open(os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		s.close()
		return nil, fmt.Errorf("recover the spool %s: %w", path, err)
	}
	return s, nil
}

// open opens the files; how applies to the data, without which a journal says nothing.
func (s *spool) open(how int) error {
	data, err := os.OpenFile(s.path, how, 0o600)
	if err != nil {
		return fmt.Errorf("open the spool: %w", err)
	}
	journal, err := os.OpenFile(s.path+journalSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		_ = data.Close()
		return fmt.Errorf("open the spool's journal: %w", err)
	}
	s.data, s.journal = data, journal
	return nil
}

// make makes the files unless they are there.
func (s *spool) make() error {
	if s.data != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("make the spool's directory: %w", err)
	}
	return s.open(os.O_RDWR | os.O_CREATE)
}

// recover follows the journal as far as the file agrees with it.
func (s *spool) recover() error {
	info, err := s.data.Stat()
	if err != nil {
		return err
	}
	s.tail = info.Size()
	lines := bufio.NewReader(s.journal)
	data := bufio.NewReaderSize(s.data, 128<<10)
	var good int64
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a line without its end was never finished
		}
		if err != nil {
			return err
		}
		var r spoolRecord
		if json.Unmarshal(line, &r) != nil || r.Size < s.size || r.Size > s.tail {
			break
		}
		sum := crc32.New(castagnoli)
		if _, err := io.CopyN(sum, data, r.Size-s.size); err != nil {
			return err
		}
		if sum.Sum32() != r.CRC {
			break
		}
		s.size, s.pos, s.end = r.Size, r.Pos, r.End
		if r.Gap != nil {
			s.gaps = append(s.gaps, *r.Gap)
		}
		for _, m := range r.Times.marks {
			s.times.add(m.second, m.offset)
		}
		s.times.step = max(s.times.step, r.Blind)
		good += int64(len(line))
	}
	s.journaled = s.size
	if err := s.journal.Truncate(good); err != nil {
		return err
	}
	s.journalAt = good
	return s.trimZeros()
}

// trimZeros cuts the zero bytes that a power cut leaves at the end of a file, as far as the journal does not vouch for them.
func (s *spool) trimZeros() error {
	var block [4096]byte
	for s.tail > s.size {
		n := min(int64(len(block)), s.tail-s.size)
		if _, err := s.data.ReadAt(block[:n], s.tail-n); err != nil {
			return err
		}
		for n > 0 && block[n-1] == 0 {
			n--
			s.tail--
		}
		if n > 0 {
			break
		}
	}
	return s.data.Truncate(s.tail)
}

// append adds output; pos is the position behind it. After an error, size and pos say what the spool holds.
// marks are the seconds that begin in p, by their offset in it.
func (s *spool) append(p []byte, pos position, marks []mark) error {
	at := s.size
	if err := s.write(p, pos); err != nil {
		return err
	}
	for _, m := range marks {
		if m.offset < int64(len(p)) {
			s.times.add(m.second, at+m.offset)
			s.fresh = append(s.fresh, mark{m.second, at + m.offset})
		}
	}
	if now := time.Now(); s.size-s.journaled >= journalBytes || now.Sub(s.at) >= journalEvery {
		return s.record(now, nil)
	}
	return nil
}

func (s *spool) write(p []byte, pos position) error {
	if err := s.make(); err != nil {
		return err
	}
	if _, err := s.data.WriteAt(p, s.size); err != nil {
		return fmt.Errorf("write the spool: %w", err)
	}
	s.crc = crc32.Update(s.crc, castagnoli, p)
	s.size += int64(len(p))
	s.pos = pos
	return nil
}

// mark adds a gap: a line of text for people, and the record of it. pos is where reading goes on.
func (s *spool) mark(g Gap, pos position) error {
	text := "[nagelfluh] " + g.Reason + "\n"
	if s.size > 0 {
		var last [1]byte
		if _, err := s.data.ReadAt(last[:], s.size-1); err != nil {
			return fmt.Errorf("read the spool: %w", err)
		}
		if last[0] != '\n' {
			text = "\n" + text
		}
	}
	g.Offset = s.size
	if err := s.write([]byte(text), pos); err != nil {
		return err
	}
	s.gaps = append(s.gaps, g)
	return s.record(g.At, &g)
}

// adoptTail takes what a crash left beyond the journal: the cluster cannot give it again.
func (s *spool) adoptTail() error {
	if s.tail <= s.size {
		return nil
	}
	p := make([]byte, s.tail-s.size) // at most about journalBytes and one read
	if _, err := s.data.ReadAt(p, s.size); err != nil {
		return fmt.Errorf("read the spool: %w", err)
	}
	s.times.step = blind
	return s.write(p, s.pos)
}

// finish says that nothing will be added. That of a spool without files is for others to remember.
func (s *spool) finish(complete bool) error {
	s.end = &spoolEnd{Complete: complete}
	if s.data == nil {
		return nil
	}
	if err := s.data.Truncate(s.size); err != nil {
		return fmt.Errorf("cut the spool: %w", err)
	}
	return s.record(time.Now(), nil)
}

func (s *spool) record(now time.Time, g *Gap) error {
	line, err := json.Marshal(spoolRecord{Size: s.size, CRC: s.crc, Pos: s.pos, Gap: g, End: s.end, Times: Times{marks: s.fresh}, Blind: s.times.step / blind * blind})
	if err != nil {
		return fmt.Errorf("encode the spool's journal: %w", err)
	}
	line = append(line, '\n')
	if _, err := s.journal.WriteAt(line, s.journalAt); err != nil {
		return fmt.Errorf("write the spool's journal: %w", err)
	}
	s.journalAt += int64(len(line))
	s.journaled, s.crc, s.at, s.fresh = s.size, 0, now, s.fresh[:0]
	return nil
}

func (s *spool) close() {
	if s.data != nil {
		_ = s.data.Close()
		_ = s.journal.Close()
	}
}
