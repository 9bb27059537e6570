package health

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// condition wants a condition to be so, by the row as stored.
func (h *hand) condition(t cluster.ConditionType, status cluster.Status, reason, says string) {
	h.t.Helper()
	c := h.w.seen("a").Condition(t)
	if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) || c.Since.IsZero() {
		h.t.Errorf("condition %+v, want %s for %q saying %q", c, status, reason, says)
	}
}

func TestConditionsOfAGoodCluster(t *testing.T) {
	h := byHand(t)
	for _, kind := range cluster.ConditionKinds {
		h.condition(kind.Type, cluster.True, "", "")
	}
	before := h.w.seen("a").Conditions
	h.pass(time.Hour)
	for i, c := range h.w.seen("a").Conditions {
		if c != before[i] {
			t.Errorf("%+v changed to %+v although nothing happened", before[i], c)
		}
	}
}

func TestConditionsOfRefusals(t *testing.T) {
	h := byHand(t)
	jobs := "/apis/batch/v1/namespaces/jobs/jobs"
	answer := func(path string, code int) {
		h.api.set(func() { clear(h.api.codes); h.api.codes[path] = code })
		h.c.once(t.Context())
	}
	answer(jobs, http.StatusUnauthorized)
	h.condition(cluster.Reachable, cluster.True, "", "")
	h.condition(cluster.Authenticated, cluster.False, "credentials", "does not accept")
	h.is(cluster.Suspect)
	h.pass(time.Hour)
	h.is(cluster.Suspect) // it answers: never lost

	answer(jobs, http.StatusForbidden)
	h.condition(cluster.Authenticated, cluster.True, "", "")
	h.condition(cluster.Permitted, cluster.False, "permissions", "may not do")
	h.is(cluster.Suspect)

	answer("/none", 0)
	h.api.set(func() { h.api.denies = true })
	h.pass(2 * slowFacts)
	h.condition(cluster.Permitted, cluster.False, "permissions", "may not create jobs, get jobs")
	h.is(cluster.Suspect)
	h.api.set(func() { h.api.denies = false })
	h.pass(15 * time.Second)
	h.is(cluster.Ready)
	h.api.set(func() { h.api.codes["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"] = 403 })
	h.pass(2 * slowFacts)
	h.is(cluster.Ready) // may not ask

	answer("/version", http.StatusInternalServerError)
	h.condition(cluster.Serving, cluster.False, "server", "reports an error")
	h.pass(time.Minute)
	h.is(cluster.Suspect)

	answer("/none", 0)
	h.is(cluster.Ready)
	h.api.set(func() { h.api.cut = true })
	h.pass(time.Minute)
	h.condition(cluster.Reachable, cluster.False, "connection", "broke")
	h.condition(cluster.Authenticated, cluster.Unknown, "unreachable", "")
	h.condition(cluster.SameCluster, cluster.True, "", "")
}

// Another cluster that answers under the row is said and takes nothing, until an admin confirms it; a restart does not
// forget that, nor does it when what it was known by cannot be seen any more.
func TestB52IdentityChangeStopsPlacementsUntilConfirmed(t *testing.T) {
	h := byHand(t)
	h.api.set(func() { h.api.uid = "other" })
	h.pass(2 * slowFacts)
	h.is(cluster.Suspect)
	h.condition(cluster.SameCluster, cluster.False, "identity-changed", "other-of-kube-system, not uid-of-kube-system")
	if o := h.w.seen("a"); o.Identity != "uid-of-kube-system" || o.Reason != "identity-changed" || o.Unreachable != nil {
		t.Errorf("observed %+v", o)
	}
	h.restart()
	h.is(cluster.Suspect)
	h.api.set(func() { h.api.codes["/api/v1/namespaces/kube-system"] = 403 })
	h.pass(2 * slowFacts)
	h.is(cluster.Suspect)
	h.api.set(func() { clear(h.api.codes) })

	h.w.mu.Lock()
	row := h.w.rows["a"]
	row.Observed.Identity = "other-of-kube-system"
	h.w.rows["a"] = row
	h.w.mu.Unlock()
	h.c.edited(row)
	h.pass(20 * time.Second)
	h.is(cluster.Ready)
	h.condition(cluster.SameCluster, cluster.True, "", "")
	if o := h.w.seen("a"); o.Identity != "other-of-kube-system" {
		t.Errorf("identity %s", o.Identity)
	}
}

// An account that sees only the namespace of the jobs has the cluster known by it. When it comes to see kube-system, that
// counts: then a namespace that was made anew is no other cluster.
func TestIdentityIsLearnedWithTheRights(t *testing.T) {
	h := byHand(t)
	const system = "/api/v1/namespaces/kube-system"
	known := func(identity, namespace string, status cluster.Status) {
		t.Helper()
		h.pass(2 * slowFacts)
		if o := h.w.seen("a"); o.Identity != identity || o.NamespaceUID != namespace || o.Condition(cluster.SameCluster).Status != status {
			t.Fatalf("known by %q and %q, same %s", o.Identity, o.NamespaceUID, o.Condition(cluster.SameCluster).Status)
		}
	}
	h.api.set(func() { h.api.codes[system] = 403 })
	known("uid-of-kube-system", "uid-of-jobs", cluster.True)

	row := h.w.rows["a"]
	row.Observed = cluster.Observed{}
	h.w.rows["a"] = row
	h.restart()
	known("uid-of-jobs", "uid-of-jobs", cluster.True)
	h.api.set(func() { h.api.again = "2" })
	known("uid-of-jobs", "uid-of-jobs", cluster.Unknown)
	h.is(cluster.Ready)

	h.api.set(func() { h.api.again = ""; clear(h.api.codes) })
	known("uid-of-kube-system", "uid-of-jobs", cluster.True)
	h.api.set(func() { h.api.again = "3" })
	known("uid-of-kube-system", "uid-of-jobs3", cluster.True)
	h.is(cluster.Ready)
	h.api.set(func() { h.api.again, h.api.uid = "", "other" })
	known("uid-of-kube-system", "uid-of-jobs3", cluster.False)
	h.is(cluster.Suspect)
}

// What a row was known by in one namespace says nothing in another.
func TestIdentityInAnotherNamespace(t *testing.T) {
	h := byHand(t)
	h.api.set(func() { h.api.codes["/api/v1/namespaces/kube-system"] = 403 })
	row := h.w.rows["a"]
	row.Observed = cluster.Observed{}
	h.w.rows["a"] = row
	h.restart()
	h.pass(time.Minute)
	row = h.w.rows["a"]
	if row.Observed.Identity != "uid-of-jobs" {
		t.Fatalf("identity %q", row.Observed.Identity)
	}
	row.Namespace, row.Observed.Identity, row.Observed.NamespaceUID = "team", "", "" // as the store does it
	h.w.rows["a"] = row
	h.registry.Changed("a")
	eventually(t, "a client of the other namespace", func() bool {
		client, err := h.registry.Get(t.Context(), "a")
		return err == nil && client.Namespace == "team"
	})
	h.c.edited(row)
	h.pass(time.Minute)
	if o := h.w.seen("a"); o.Identities() != "uid-of-team" || o.Condition(cluster.SameCluster).Status != cluster.True {
		t.Errorf("known by %q, %+v", o.Identities(), o.Condition(cluster.SameCluster))
	}
}

// The cluster that comes back after an outage may be another one: it is asked before anything is placed.
func TestIdentityIsReadAgainAfterAnOutage(t *testing.T) {
	h := byHand(t)
	h.cut(true)
	h.pass(time.Minute)
	h.api.set(func() { h.api.cut, h.api.uid = false, "other" })
	h.pass(15 * time.Second)
	h.is(cluster.Suspect)
	h.went(cluster.Suspect)
}

func TestConditionOfTheNamespace(t *testing.T) {
	h := byHand(t)
	h.api.set(func() { h.api.codes["/api/v1/namespaces/jobs"] = 404 })
	h.pass(2 * slowFacts)
	h.condition(cluster.NamespaceReady, cluster.False, "missing", "jobs is not there")
	h.is(cluster.Suspect)
	h.api.set(func() { h.api.codes["/api/v1/namespaces/jobs"] = 403 })
	h.pass(15 * time.Second)
	h.condition(cluster.NamespaceReady, cluster.True, "unseen", "may not read")
	h.is(cluster.Ready)
}

func TestConditionOfTheClock(t *testing.T) {
	h := byHand(t)
	for shift, says := range map[time.Duration]string{-2 * time.Hour: "behind ours", time.Hour: "ahead of ours"} {
		h.api.set(func() { h.api.date = time.Now().Add(shift).UTC().Format(http.TimeFormat) })
		h.pass(2 * slowFacts)
		h.condition(cluster.ClockInStep, cluster.False, "skew", says)
		h.is(cluster.Degraded)
	}
	h.api.set(func() { h.api.date = "" })
	h.pass(2 * slowFacts)
	h.condition(cluster.ClockInStep, cluster.True, "", "")
	h.is(cluster.Ready)
}

func TestConditionOfTheCredentials(t *testing.T) {
	h := byHand(t)
	ends := h.clock.Now().Add(40 * 24 * time.Hour)
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	h.w.mu.Lock()
	h.w.token = part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"exp":%d}`, ends.Unix())) + "." + part("x")
	h.w.mu.Unlock()
	h.restart()
	h.condition(cluster.CredentialsValid, cluster.True, "", "")
	h.clock.Step(20 * 24 * time.Hour)
	h.c.once(t.Context())
	h.condition(cluster.CredentialsValid, cluster.True, "expiring", ends.UTC().Format(time.DateOnly))
	h.is(cluster.Ready)
	h.clock.Step(20 * 24 * time.Hour)
	h.c.once(t.Context())
	h.condition(cluster.CredentialsValid, cluster.False, "expired", "expired on")
	h.is(cluster.Degraded)
}

func TestConditionOfTheProvider(t *testing.T) {
	h := byHand(t)
	served := false
	h.m.o.Served = func(string) bool { return served }
	h.c.once(t.Context())
	h.condition(cluster.ProviderServed, cluster.False, "not-served", "No provider plugin")
	h.is(cluster.Degraded) // what is connected goes on
	served = true
	h.c.once(t.Context())
	h.is(cluster.Ready)
	h.w.mu.Lock()
	h.w.broken = errors.New("the vault is sealed")
	h.w.mu.Unlock()
	h.restart()
	h.pass(time.Minute)
	h.condition(cluster.Reachable, cluster.False, "provider", "the vault is sealed")
}
