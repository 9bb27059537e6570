package connection

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Remedies that stand at several places.
const (
	checkAddress  = "Check that server is the address of the API server, seen from the machine that Nagelfluh runs on, and that no firewall is in between."
	notKubernetes = "Give the address of the Kubernetes API itself, not of a dashboard, a login page or a proxy that redirects to one."
	testAgain     = "Test again; if it stays so, look at the API server's own log."
	loopback      = "This address means the machine that Nagelfluh runs on. If the cluster runs elsewhere, use an address of it that can be reached from there."
)

// failWith ends the test with a verdict on the phase under way. It always returns false.
func (r *run) failWith(class kube.Class, code int, message, remedy string) bool {
	return r.failAs(string(class), code, message, remedy)
}

func (r *run) failAs(class string, code int, message, remedy string) bool {
	r.steps.fail(message)
	r.report.OK = false
	r.report.Class, r.report.HTTPStatus, r.report.Message, r.report.Remedy = class, code, message, remedy
	return false
}

// stopped says whether the test ended from outside: the caller left, or a phase took too long.
func (r *run) stopped() bool {
	switch late := r.steps.expired(); {
	case r.caller.Err() != nil:
		r.failWith(kube.Canceled, 0, "The test was given up.", "Test again.")
	case late != nil:
		message, remedy := r.lateText(late)
		r.failWith(kube.Timeout, 0, message, remedy)
	default:
		return false
	}
	return true
}

// fail ends the test with what an error of the network or of the API server means.
func (r *run) fail(err error) bool {
	if r.stopped() {
		return false
	}
	class, code := kube.Classify(err), 0
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	message, remedy := "", testAgain
	if class == kube.Other && gibberish(err) {
		class = kube.NotKubernetes
	}
	switch class {
	case kube.DNS:
		message, remedy = r.nameText(err), "Check the name in server, and that the name servers of the machine that Nagelfluh runs on know it."
	case kube.Denied:
		_, why, _ := strings.Cut(bare(err), kube.ErrDenied.Error()+": ")
		message = fmt.Sprintf("The address of %s is not allowed: %s.", r.host(), why)
		remedy = "Use the address of the API server. If it really is this one, the operator can allow it by kube.allow_cidrs."
	case kube.Refused:
		message, remedy = r.refusedText(err)
	case kube.Timeout:
		// A limit of the transport's own, which is no shorter than the phase's.
		message, remedy = r.lateText(&tooLong{phase: r.steps.current(), limit: r.t.o.Phase})
	case kube.TLS:
		message, remedy = r.tlsText(err)
	case kube.NotKubernetes:
		message, remedy = fmt.Sprintf("%s is no Kubernetes API: %s.", r.host(), bare(err)), notKubernetes
	case kube.Credentials:
		return r.failCredentials(code, bare(err))
	case kube.Server:
		message = fmt.Sprintf("The API server reports an error (%d): %s.", code, bare(err))
	case kube.Throttled:
		message, remedy = "The API server is overloaded: "+bare(err)+".", "Test again in a moment."
	case kube.Broken:
		message = fmt.Sprintf("The connection to %s ended before an answer came (phase %s).", r.place(), r.steps.current())
		remedy = "Check that address and port are those of the API server, and what is in between: a proxy, a firewall or a load balancer."
	default:
		message = fmt.Sprintf("The test failed in phase %s: %s.", r.steps.current(), bare(err))
	}
	return r.failWith(class, code, message, remedy)
}

// gibberish says whether the answer was no HTTP, or of a format that no API server answers in. For a write that is no proof
// that nothing happened, so it is no class of kube's; a test writes nothing. The libraries export no types for it.
func gibberish(err error) bool {
	text := err.Error()
	return strings.Contains(text, "malformed HTTP") || strings.Contains(text, "serializer for ")
}

// lateText says what did not come in time.
func (r *run) lateText(late *tooLong) (message, remedy string) {
	within := "within " + late.limit.String()
	remedy = checkAddress
	switch late.phase {
	case "provider", "policy":
		message, remedy = "The provider gave no connection "+within, "Look at the provider plugin and at what it connects with."
	case "resolve":
		message, remedy = fmt.Sprintf("The name server gave no answer for %s %s", r.host(), within), "Look at the name servers of the machine that Nagelfluh runs on."
	case "connect":
		message = fmt.Sprintf("No connection to %s %s: nothing answers there", r.place(), within)
		if r.trial.Backend && r.seen.address() == "" {
			message, remedy = "The server's own environment gave no credentials "+within, "Look at the program that its kubeconfig runs for them (exec)."
		}
	case "tls":
		message = fmt.Sprintf("%s took the connection and did not finish TLS %s", r.place(), within)
	case "http":
		message = fmt.Sprintf("%s finished TLS and gave no HTTP answer %s", r.place(), within)
		if r.headers {
			message = fmt.Sprintf("%s sent the headers of an answer and not the rest %s", r.place(), within)
		}
	default:
		message, remedy = fmt.Sprintf("The API server did not answer all questions about %s %s", late.phase, within), "It is slow: look at its load, and at the network in between."
	}
	if late.whole {
		message += ", the limit of the whole test"
	}
	return fmt.Sprintf("%s (phase %s).", message, late.phase), remedy
}

func (r *run) nameText(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) && !dns.IsNotFound {
		return fmt.Sprintf("The host name %s could not be looked up: %s.", r.host(), dns.Err)
	}
	return fmt.Sprintf("The host name %s has no address.", r.host())
}

func (r *run) refusedText(err error) (message, remedy string) {
	message, remedy = fmt.Sprintf("Nothing listens at %s.", r.place()), checkAddress
	if !errors.Is(err, syscall.ECONNREFUSED) {
		message = fmt.Sprintf("There is no route to %s.", r.place())
	}
	if at, err := netip.ParseAddrPort(r.seen.address()); err == nil && at.Addr().Unmap().IsLoopback() {
		remedy = loopback
	}
	return message, remedy
}

// failCredentials ends the test because the cluster does not know the account.
func (r *run) failCredentials(code int, detail string) bool {
	message := "The cluster does not accept the credentials"
	if code != 0 {
		message += fmt.Sprintf(" (HTTP %d)", code)
	}
	if detail != "" {
		message += ": " + detail
	}
	remedy := "Get a new token or client certificate for an account of this cluster: one of another cluster does not do."
	if at := r.report.ExpiresAt; at != nil && at.Before(time.Now()) {
		message += "; they expired on " + date(*at)
	}
	return r.failWith(kube.Credentials, code, message+".", remedy)
}

// failAnonymous ends the test because the cluster takes the account for nobody.
func (r *run) failAnonymous(code int) bool {
	message := "The cluster is reached, but it takes the account for anonymous: the kubeconfig has no credentials that it knows"
	if code != 0 {
		message += fmt.Sprintf(" (HTTP %d)", code)
	}
	return r.failWith(kube.Credentials, code, message+".", "Give the kubeconfig a user with a token or a client certificate of this cluster.")
}

// failProvider ends the test with what the provider says.
func (r *run) failProvider(err error) bool {
	if r.stopped() {
		return false
	}
	var p *problem.Error
	switch {
	case errors.As(err, &p) && len(p.Fields) > 0:
		for _, f := range p.Fields {
			r.report.Fields = append(r.report.Fields, cluster.ReportField(f))
		}
		return r.failAs(cluster.ClassConfig, 0, sentence(p.Detail), "Correct the fields that are named.")
	case errors.As(err, &p):
		return r.failWith(kube.Provider, 0, "No connection from the provider: "+sentence(p.Detail), "Look at the provider plugin: nagelfluh plugins list.")
	}
	return r.failWith(kube.Provider, 0, "No connection from the provider: "+sentence(err.Error()), "Look at the provider plugin: nagelfluh plugins list.")
}

// failPolicy ends the test with what the policy refuses. Credentials that have ended are a matter of credentials.
func (r *run) failPolicy(err error) bool {
	if r.stopped() {
		return false
	}
	var refusal *kubeconfig.Refusal
	if !errors.As(err, &refusal) {
		return r.failWith(kube.Provider, 0, "The provider gave no usable connection: "+sentence(err.Error()), "Look at the provider plugin and at the config of the cluster.")
	}
	for _, p := range refusal.All {
		field := p.Field
		if field == "" {
			field = "kubeconfig"
		}
		text := p
		text.Field = ""
		r.report.Fields = append(r.report.Fields, cluster.ReportField{Field: field, Message: text.String()})
	}
	r.report.Contexts = refusal.Contexts
	class, text := cluster.ClassPolicy, refusal.Problem
	if refusal.Expired() {
		class = string(kube.Credentials)
	}
	remedy := text.Remedy
	text.Remedy = ""
	message := "The kubeconfig is refused: " + text.String()
	if more := len(refusal.All) - 1; more > 0 {
		message += fmt.Sprintf(" (and %s more)", plural(more, "problem", "problems"))
	}
	return r.failAs(class, 0, sentence(message), sentence(upper(remedy)))
}

// host is the host of the server's URL.
func (r *run) host() string {
	if r.trial == nil {
		return "the server"
	}
	u, err := url.Parse(r.trial.Server())
	if err != nil || u.Host == "" {
		return r.trial.Server() // the backend's may be without a scheme
	}
	return u.Host
}

// place is the host, and the address that was tried where that says more.
func (r *run) place() string {
	host, addr := r.host(), r.seen.address()
	if addr == "" || addr == host {
		return host
	}
	return fmt.Sprintf("%s (%s)", host, addr)
}

// bare is the text of an error without the request that it wraps, bounded.
func bare(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	text := strings.TrimRight(err.Error(), ". \n")
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func sentence(text string) string {
	if text = strings.TrimRight(text, ". \n"); text == "" {
		return ""
	}
	return text + "."
}

func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
