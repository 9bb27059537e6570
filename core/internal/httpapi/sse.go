package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// sse writes server-sent events. Headers and a comment go out at once, so that a client of a silent stream sees that it
// is open. Not safe for concurrent use.
type sse struct {
	w  *echo.Response
	rc *http.ResponseController
	b  []byte
}

// writeLimit bounds one write to a client that has stopped reading.
const writeLimit = 30 * time.Second

func openSSE(c echo.Context) (*sse, error) {
	s := newSSE(c)
	s.comment("open")
	return s, s.flush()
}

func newSSE(c echo.Context) *sse {
	w := c.Response()
	h := w.Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	w.WriteHeader(http.StatusOK)
	return &sse{w: w, rc: http.NewResponseController(w.Writer)}
}

// event adds one event; data is one line.
func (s *sse) event(id int64, name string, data []byte) {
	if id > 0 {
		s.b = strconv.AppendInt(append(s.b, "id: "...), id, 10)
		s.b = append(s.b, '\n')
	}
	s.b = append(append(append(s.b, "event: "...), name...), '\n')
	s.b = append(append(append(s.b, "data: "...), data...), "\n\n"...)
}

// comment adds a line that clients ignore.
func (s *sse) comment(text string) { s.b = append(append(append(s.b, ": "...), text...), "\n\n"...) }

// flush sends what was added.
func (s *sse) flush() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeLimit)) // not every writer has one; then the client's end ends the write
	_, err := s.w.Write(s.b)
	s.b = s.b[:0]
	if err != nil {
		return err
	}
	return flushed(s.rc)
}

func flushed(rc *http.ResponseController) error {
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
