package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/replica"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

// leaderWait is how long a request that only the leader can serve waits for one: about as long as a take-over takes.
const leaderWait = 15 * time.Second

// forLeader says whether a request is the leader's to serve: it changes what placement keeps in memory, ends work that
// goes on there, or asks for what only a server knows that places. Logs find their way by themselves.
func forLeader(c echo.Context) bool {
	path := strings.TrimPrefix(c.Path(), BasePath)
	switch {
	case strings.HasPrefix(path, "/clusters"), path == "/settings/default-cluster":
		return c.Request().Method != http.MethodGet
	}
	return strings.HasSuffix(path, "/processes/dry-run")
}

// passOn has the leader serve the request, unless this server leads; done: it did.
func (s *Server) passOn(c echo.Context) (done bool, err error) {
	r := c.Request()
	leader, _ := s.o.Leaders.View()
	if leader.Self {
		return false, nil
	}
	if r.Header.Get(replica.HeaderForwarded) != "" {
		return false, replica.ErrNoLeader // it came from a server that has an older view than this one, or a newer one
	}
	if leader, err = replica.Await(r.Context(), s.o.Leaders, leaderWait); err != nil || leader.Self {
		return false, err
	}
	// One request, one id; the leader's answer brings it back.
	r.Header.Set(headerRequestID, requestid.From(r.Context()))
	c.Response().Header().Del(headerRequestID)
	if err := replica.Forward(c.Response(), r, s.o.Transport, leader.Address, s.o.Self); err != nil {
		return false, err
	}
	return true, nil
}

func leaderCheck(v lease.View) Check {
	switch {
	case v.Self:
		return Check{Name: "leader", OK: true, Detail: "this server leads"}
	case v.Address != "":
		return Check{Name: "leader", OK: true, Detail: v.Address + " leads"}
	}
	return Check{Name: "leader", Detail: "no server leads: nothing is placed or followed until one does"}
}
