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
	patient
	b []byte
}

// patient sets the limit of a write anew before each: the one before has long passed when a stream was silent.
type patient struct {
	w     *echo.Response
	rc    *http.ResponseController
	limit time.Duration
}

func (s *Server) newPatient(w *echo.Response) patient {
	return patient{w, http.NewResponseController(w.Writer), s.o.WriteLimit}
}

func (p patient) Write(b []byte) (int, error) {
	p.renew()
	return p.w.Write(b)
}

// flush sends what was written.
func (p patient) flush() error {
	p.renew()
	if err := p.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// renew does nothing where a writer knows no limit: then the client's end ends the write.
func (p patient) renew() { _ = p.rc.SetWriteDeadline(time.Now().Add(p.limit)) }

func (s *Server) openSSE(c echo.Context) (*sse, error) {
	out := s.newSSE(c)
	out.comment("open")
	return out, out.flush()
}

func (s *Server) newSSE(c echo.Context) *sse {
	w := c.Response()
	h := w.Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	w.WriteHeader(http.StatusOK)
	return &sse{patient: s.newPatient(w)}
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
	_, err := s.Write(s.b)
	s.b = s.b[:0]
	if err != nil {
		return err
	}
	return s.patient.flush()
}
