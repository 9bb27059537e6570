package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class says what kind of thing went wrong with a call. The words are stable: they stand in the API and in metrics.
type Class string

// Classes. OK stands for no error.
const (
	OK            Class = ""
	DNS           Class = "dns"            // the host name has no address
	Denied        Class = "denied"         // the operator's dial policy forbids the address
	Refused       Class = "refused"        // nothing listens, or no route
	Timeout       Class = "timeout"        // no answer in time
	Broken        Class = "connection"     // the connection ended before the answer did
	TLS           Class = "tls"            // no TLS, or a certificate that does not verify
	NotKubernetes Class = "not-kubernetes" // something answers that is no Kubernetes API
	Credentials   Class = "credentials"    // 401, or a client certificate that is not taken
	Permissions   Class = "permissions"    // 403: rights, quota or a webhook
	NotFound      Class = "notfound"       // 404 said by the Kubernetes API itself
	Conflict      Class = "conflict"       // 409 of a version or a UID
	Exists        Class = "exists"         // 409 of a name
	Gone          Class = "gone"           // 410: a resource version too old
	Invalid       Class = "invalid"        // 400, 413, 422 and other refusals of the request itself
	Throttled     Class = "throttled"      // 429, or our own rate limit
	Server        Class = "server"         // 5xx
	Canceled      Class = "canceled"       // the caller gave up
	Provider      Class = "provider"       // no connection from the provider plugin, or one that the policy refuses
	Other         Class = "other"
)

// Classify returns the class of an error of any call of this package or of a clientset that it made.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	var connect *ConnectError
	if errors.As(err, &connect) {
		return Provider
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return classifyStatus(status.Status())
	}
	return classifyTransport(err)
}

func classifyStatus(s metav1.Status) Class {
	switch code := s.Code; {
	case code == http.StatusUnauthorized:
		return Credentials
	case code == http.StatusTooManyRequests:
		return Throttled
	case code >= 500:
		return Server
	case foreign(s):
		return NotKubernetes
	case code == http.StatusForbidden:
		return Permissions
	case code == http.StatusNotFound:
		return NotFound
	case code == http.StatusConflict && s.Reason == metav1.StatusReasonAlreadyExists:
		return Exists
	case code == http.StatusConflict:
		return Conflict
	case code == http.StatusGone || s.Reason == metav1.StatusReasonExpired:
		return Gone
	case code >= 400:
		return Invalid
	default:
		return Other
	}
}

// foreign says whether the answer was no Status object: a proxy, a login page or another server gave it. Its 404 says
// nothing about a Job.
func foreign(s metav1.Status) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}

func classifyTransport(err error) Class {
	var (
		dns     *net.DNSError
		network net.Error
		syntax  *json.SyntaxError
	)
	switch {
	case errors.Is(err, ErrDenied):
		return Denied
	case errors.Is(err, context.Canceled):
		return Canceled
	case strings.Contains(err.Error(), "client rate limiter Wait"):
		return Throttled // by our own limit: the request was never sent
	case errors.As(err, &dns) && !dns.IsTimeout:
		return DNS
	case certificateRefused(err):
		return Credentials
	case isTLS(err):
		return TLS
	case errors.Is(err, errRedirect), errors.As(err, &syntax):
		return NotKubernetes
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), lost(err):
		return Broken
	default:
		return Other
	}
}

func isTLS(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid) ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") || strings.Contains(err.Error(), "remote error: tls:")
}

// certificateRefused says whether the other side ended the handshake because of our client certificate, or for want of
// one. The library exports no type for what it was told.
func certificateRefused(err error) bool {
	text := err.Error()
	for _, alert := range []string{"certificate required", "bad certificate", "expired certificate", "revoked certificate", "unknown certificate",
		"unknown certificate authority"} {
		if strings.Contains(text, "remote error: tls: "+alert) {
			return true
		}
	}
	return false
}

// lost recognises errors of the HTTP/2 library, which exports no type for them.
func lost(err error) bool {
	text := err.Error()
	for _, part := range []string{"http2: client connection lost", "http2: server sent GOAWAY", "http2: client connection force closed",
		"http2: Transport received Server's graceful shutdown GOAWAY", "stream error:", "connection reset by peer", "http2: response body closed", "server closed idle connection"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// Reached says whether an HTTP answer came from the cluster's address, whatever it said.
func Reached(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) && !errors.As(err, new(*ConnectError))
}

// Unreachable says whether the class means that the cluster cannot be reached as it is configured.
func (c Class) Unreachable() bool {
	switch c {
	case DNS, Denied, Refused, Timeout, Broken, TLS, Provider:
		return true
	}
	return false
}

// MayHaveHappened says whether a write that ended with this error may have taken effect all the same.
func MayHaveHappened(err error) bool {
	switch Classify(err) {
	case Timeout, Broken, Server, Canceled, Other:
	default:
		return false
	}
	// A connection that was never made carried nothing.
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}

// RetryAfter is how long the cluster asked to wait; zero: it did not say.
func RetryAfter(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// ConnectError says that no connection to a cluster could be made from what its provider gave.
type ConnectError struct {
	ClusterID string
	Err       error
}

func (e *ConnectError) Error() string {
	return "connect to cluster " + e.ClusterID + ": " + e.Err.Error()
}
func (e *ConnectError) Unwrap() error { return e.Err }
