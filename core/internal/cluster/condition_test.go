package cluster

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	g := Grace{Suspect: 5 * time.Second, Lost: 15 * time.Minute}
	good := []Condition{
		{Type: Reachable, Status: True}, {Type: Authenticated, Status: True}, {Type: Permitted, Status: True}, {Type: Serving, Status: True},
	}
	with := func(cs ...Condition) []Condition {
		o := Observed{Conditions: good}
		for _, c := range cs {
			at := c.Since
			if at.IsZero() {
				at = now.Add(-time.Hour)
			}
			o.Set(c.Type, c.Status, c.Reason, "", at)
		}
		return o.Conditions
	}
	// the conditions of good have no time, which Set takes for never looked at
	for i := range good {
		good[i].Since = now.Add(-time.Hour)
	}
	tests := map[string]struct {
		conditions []Condition
		silent     time.Duration
		want       Health
		reason     string
	}{
		"nothing known":                    {nil, 0, New, ""},
		"all well":                         {good, 0, Ready, ""},
		"never asked, type served":         {[]Condition{{Type: ProviderServed, Status: True, Since: now}}, 0, New, ""},
		"one failed look, not said yet":    {good, 3 * time.Second, Ready, ""},
		"no answer":                        {with(Condition{Type: Reachable, Status: False, Reason: "timeout"}), time.Minute, Suspect, "timeout"},
		"no answer since we started":       {with(Condition{Type: Reachable, Status: False, Reason: "timeout"}), 0, Suspect, "timeout"},
		"just not lost":                    {with(Condition{Type: Reachable, Status: False, Reason: "timeout"}), 15*time.Minute - 1, Suspect, "timeout"},
		"lost":                             {with(Condition{Type: Reachable, Status: False, Reason: "timeout"}), 15 * time.Minute, Lost, "timeout"},
		"lost by its provider":             {with(Condition{Type: Reachable, Status: False, Reason: "provider"}), time.Hour, Lost, "provider"},
		"credentials refused for long":     {with(Condition{Type: Authenticated, Status: False, Reason: "credentials"}), 0, Suspect, "credentials"},
		"may not":                          {with(Condition{Type: Permitted, Status: False, Reason: "permissions"}), 0, Suspect, "permissions"},
		"another cluster":                  {with(Condition{Type: SameCluster, Status: False, Reason: "identity-changed"}), 0, Suspect, "identity-changed"},
		"identity not to be seen":          {with(Condition{Type: SameCluster, Status: Unknown, Reason: "unseen"}), 0, Ready, ""},
		"no namespace":                     {with(Condition{Type: NamespaceReady, Status: False, Reason: "missing"}), 0, Suspect, "missing"},
		"errors":                           {with(Condition{Type: Serving, Status: False, Reason: "server", Since: now.Add(-time.Second)}), 0, Degraded, "server"},
		"errors that last":                 {with(Condition{Type: Serving, Status: False, Reason: "server", Since: now.Add(-5 * time.Second)}), 0, Suspect, "server"},
		"type not served, connection left": {with(Condition{Type: ProviderServed, Status: False, Reason: "not-served"}), 0, Degraded, "not-served"},
		"clocks apart":                     {with(Condition{Type: ClockInStep, Status: False, Reason: "skew"}), 0, Degraded, "skew"},
		"expired by the calendar":          {with(Condition{Type: CredentialsValid, Status: False, Reason: "expired"}), 0, Degraded, "expired"},
		"expiring soon":                    {with(Condition{Type: CredentialsValid, Status: True, Reason: "expiring"}), 0, Ready, ""},
		"capacity unknown":                 {with(Condition{Type: CapacityKnown, Status: False, Reason: "permissions"}), 0, Ready, ""},
		"the gravest gives the reason": {with(Condition{Type: ClockInStep, Status: False, Reason: "skew"},
			Condition{Type: Reachable, Status: False, Reason: "refused"}), time.Minute, Suspect, "refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, cause := Judge(test.conditions, test.silent, now, g)
			reason := ""
			if cause != nil {
				reason = cause.Reason
			}
			if got != test.want || reason != test.reason {
				t.Errorf("%s for %q, want %s for %q", got, reason, test.want, test.reason)
			}
		})
	}
}

func TestConditionKeepsItsTime(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var o Observed
	if c := o.Condition(Reachable); c.Status != Unknown || c.Type != Reachable {
		t.Errorf("never looked at: %+v", c)
	}
	o.Set(ClockInStep, True, "", "", at)
	o.Set(Reachable, True, "", "", at)
	before := o.Conditions
	o.Set(Reachable, True, "x", "another message", at.Add(time.Hour))
	if c := o.Condition(Reachable); !c.Since.Equal(at) || c.Reason != "x" {
		t.Errorf("the same status: %+v", c)
	}
	o.Set(Reachable, False, "timeout", "", at.Add(2*time.Hour))
	if c := o.Condition(Reachable); !c.Since.Equal(at.Add(2 * time.Hour)) {
		t.Errorf("another status: %+v", c)
	}
	if before[0].Type != Reachable || before[0].Status != True || before[0].Reason != "" || len(o.Conditions) != 2 {
		t.Errorf("a list that others hold was changed, or is out of order: %+v, now %+v", before, o.Conditions)
	}
}
