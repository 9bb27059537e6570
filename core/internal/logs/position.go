package logs

import (
	"bytes"
	"time"
)

// position is how far a container's log has been read, in terms that the cluster understands when it is asked again.
//
// The cluster gives lines from a whole second on, in the order of its file. Stamps within the file are not strictly
// ordered (two writers, clock steps), so a stamp alone does not say what was read. The position is therefore an anchor: a
// second, the stamp of the first line from then on, and how many lines from then on were read. An answer that begins with
// that line is the same sequence again. Only when the cluster has dropped that line (rotation) the largest stamp decides.
//
// The anchor's second is at least one before the last, so that a line which came late with an earlier stamp is in the
// answer too. What a clock that steps back further writes just while nobody is reading would not be.
type position struct {
	Upstream int64 `json:"u,omitempty"` // bytes of output read so far
	Plain    bool  `json:"x,omitempty"` // the cluster puts no stamps before the lines; Upstream alone is the position

	anchor        // where to ask again
	Next   anchor `json:"a,omitzero"` // becomes the anchor when the next second begins

	// Partial counts the bytes read of a line whose end has not come.
	Partial int64 `json:"p,omitempty"`

	Max      int64 `json:"m,omitempty"` // largest stamp
	MaxCount int64 `json:"n,omitempty"` // whole lines with that stamp

	// For a clock that went backwards across seconds: the anchor is the start of the log then, for ever.
	Start   int64 `json:"b,omitempty"` // stamp of the first line of all
	Lines   int64 `json:"l,omitempty"` // whole lines since Start
	Rewound bool  `json:"r,omitempty"`
}

type anchor struct {
	Since int64 `json:"s,omitempty"` // Unix second; 0: the start of the log
	First int64 `json:"f,omitempty"` // stamp (ns) of the first line from Since on; 0: no line yet
	Count int64 `json:"c,omitempty"` // whole lines from Since on
}

func (a *anchor) end(stamp int64) {
	if a.First != 0 && stamp/int64(time.Second) >= a.Since {
		a.Count++
	}
}

// since is what to ask the cluster for; zero: everything.
func (p position) since() time.Time {
	if p.Plain || p.Since == 0 {
		return time.Time{}
	}
	return time.Unix(p.Since, 0).UTC()
}

// begin notes that a line with this stamp is read. Noting the same line twice changes nothing.
func (p *position) begin(stamp int64) {
	if p.Start == 0 {
		p.Start, p.First = stamp, stamp
	}
	switch second := stamp / int64(time.Second); {
	case p.Rewound:
	case second < p.Since:
		p.Rewound, p.anchor, p.Next = true, anchor{First: p.Start, Count: p.Lines}, anchor{}
	case second > p.Next.Since:
		if p.Next.First != 0 {
			p.anchor = p.Next
		}
		p.Next = anchor{Since: second, First: stamp}
	}
	if stamp > p.Max {
		p.Max, p.MaxCount = stamp, 0
	}
}

// end notes that the line with this stamp was read whole.
func (p *position) end(stamp int64) {
	p.Lines++
	p.anchor.end(stamp)
	p.Next.end(stamp)
	if stamp == p.Max {
		p.MaxCount++
	}
	p.Partial = 0
}

// head is the room that a parser's buffer keeps before the bytes read, for the beginning of a line whose rest came later.
const head = 64

// parser takes the bytes of one answer of the cluster, strips the stamps, and drops what was read before. It keeps no line
// in memory, however long.
type parser struct {
	pos position // behind everything that feed has returned

	want     position // where this answer is to be joined
	skipping bool     // lines of before are being dropped
	begun    bool     // a line came in this answer
	strayed  bool     // the answer does not begin where it should: the cluster dropped lines
	found    bool     // the last line read before has been seen again
	seen     int64    // lines dropped so far: of Count, or of MaxCount when strayed

	inLine bool
	stamp  int64 // of the line under way; 0: none
	drop   bool  // the line under way is being dropped
	rest   int64 // bytes still to be dropped of the line under way, or of a plain log

	stamps stamps

	held  [head]byte // the beginning of a line that is too short to tell whether it is a stamp
	nheld int

	fresh int64  // bytes returned
	marks []mark // seconds that begin in what was returned last, by their offset there
	lost  bool   // lines may be missing before the first byte returned
	fault string // what the kubelet wrote in place of output
}

// newParser continues at pos.
func newParser(pos position) *parser {
	p := &parser{pos: pos, want: pos}
	if pos.Plain {
		p.rest = pos.Upstream
		return p
	}
	p.skipping = pos.First != 0
	return p
}

// feed takes the n bytes at buf[head:] and returns the output in them, in place.
func (p *parser) feed(buf []byte, n int) []byte {
	p.marks = p.marks[:0]
	start := head - p.nheld
	copy(buf[start:], p.held[:p.nheld])
	p.nheld = 0
	return p.parse(buf[:0], buf[start:head+n], false)
}

// flush returns what was held back, at the orderly end of the answer. Half a stamp is dropped: its line was cut off.
func (p *parser) flush(buf []byte) []byte {
	p.marks = p.marks[:0]
	held := p.held[:p.nheld]
	p.nheld = 0
	stamped := p.pos.First != 0 || len(held) > 0 && held[0] >= '0' && held[0] <= '9'
	if stamped && !isKubeletMessage(held) {
		return nil
	}
	n := copy(buf[head:], held)
	return p.parse(buf[:0], buf[head:head+n], true)
}

func (p *parser) parse(dst, src []byte, last bool) []byte {
	for len(src) > 0 && p.fault == "" {
		if p.pos.Plain {
			return p.plain(dst, src)
		}
		if !p.inLine {
			stamp, n, ok := p.stamps.cut(src)
			if !ok && n == 0 && !last && !bytes.Contains(src, []byte{'\n'}) && len(src) < head {
				p.nheld = copy(p.held[:], src)
				return dst
			}
			if ok {
				before := p.pos.Max
				p.line(stamp)
				if second := stamp / int64(time.Second); !p.drop && p.rest == 0 && second > before/int64(time.Second) {
					p.marks = append(p.marks, mark{second, int64(len(dst))})
				}
			} else if p.unstamped(src) {
				continue
			}
			p.inLine = true
			src = src[n:]
		}
		part, whole := src, false
		if i := bytes.IndexByte(src, '\n'); i >= 0 {
			part, whole = src[:i+1], true
		}
		src = src[len(part):]
		dst = p.body(dst, part, whole)
	}
	return dst
}

// line begins a stamped line: it is dropped, continued or new.
func (p *parser) line(stamp int64) {
	p.stamp, p.drop, p.rest = stamp, false, 0
	if p.skipping {
		p.join(stamp)
	}
	p.begun = true
	if !p.drop {
		p.pos.begin(stamp)
	}
}

// join decides about a line while the answer repeats what was read before.
func (p *parser) join(stamp int64) {
	w := &p.want
	if !p.begun && stamp != w.First {
		p.strayed = true
	}
	switch {
	case !p.strayed && p.seen < w.Count:
		p.drop = true
		return
	case !p.strayed:
		p.found, p.rest = true, w.Partial
	case w.Rewound: // no stamp can tell old from new
		p.lose()
	case stamp < w.Max:
		p.drop = true
		return
	case stamp == w.Max && p.seen < w.MaxCount:
		p.drop, p.found = true, true
		return
	case stamp == w.Max && w.Partial > 0:
		p.found, p.rest = true, w.Partial
	case !p.found || w.Partial > 0:
		p.lose()
	}
	p.skipping = false
}

// lose notes that the answer does not reach back to what was read before. Counting begins anew.
func (p *parser) lose() {
	p.lost = true
	p.pos = position{Upstream: p.pos.Upstream}
}

// unstamped handles the beginning of a line without a stamp. It returns true when nothing remains to be done with src as a
// line: it is the kubelet's own message, or the log is one without stamps.
func (p *parser) unstamped(src []byte) bool {
	if isKubeletMessage(src) {
		text, _, _ := bytes.Cut(src, []byte{'\n'})
		p.fault = string(text[:min(len(text), 500)])
		return true
	}
	if p.pos.First == 0 && p.pos.Upstream == 0 && !p.begun {
		p.pos.Plain = true
		return true
	}
	// Within a stamped log: the rest of a line that began before the second asked for, when old lines are repeated. Else
	// output that came without a stamp; it is kept, and no position depends on it.
	p.stamp, p.rest, p.drop = 0, 0, p.skipping
	return false
}

// body takes a part of a line, with its newline when whole.
func (p *parser) body(dst, part []byte, whole bool) []byte {
	if p.drop {
		if whole {
			p.inLine = false
			if p.stamp != 0 && (!p.strayed || p.stamp == p.want.Max) {
				p.seen++
			}
		}
		return dst
	}
	if cut := min(p.rest, int64(len(part))); cut > 0 {
		p.rest -= cut
		part = part[cut:]
	}
	dst = append(dst, part...)
	p.fresh += int64(len(part))
	p.pos.Upstream += int64(len(part))
	switch {
	case whole:
		p.inLine = false
		if p.stamp != 0 {
			p.pos.end(p.stamp)
		}
	case p.stamp != 0:
		p.pos.Partial += int64(len(part))
	}
	return dst
}

func (p *parser) plain(dst, src []byte) []byte {
	cut := min(p.rest, int64(len(src)))
	p.rest -= cut
	src = src[cut:]
	p.fresh += int64(len(src))
	p.pos.Upstream += int64(len(src))
	return append(dst, src...)
}

// confirmed says, at the end of an answer, whether it reached what was read before: only then its end is the log's end.
func (p *parser) confirmed() bool {
	switch {
	case p.pos.Plain:
		return p.rest == 0
	case !p.skipping:
		return p.rest == 0
	case p.want.Partial > 0:
		return false
	case p.strayed:
		return p.found
	default:
		return p.seen == p.want.Count
	}
}

// kubeletMessages begin the texts that kubelets put, with status 200, where the output should be.
var kubeletMessages = [][]byte{
	[]byte("unable to retrieve container logs for "),
	[]byte("failed to try resolving symlinks in path "),
	[]byte("failed to watch directory "),
	[]byte("failed to open log file "),
	[]byte("rpc error: code = "),
}

func isKubeletMessage(line []byte) bool {
	for _, m := range kubeletMessages {
		if bytes.HasPrefix(line, m) {
			return true
		}
	}
	return false
}
