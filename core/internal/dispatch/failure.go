package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// noClient says that the cluster could not even be called: its connection could not be made.
type noClient struct{ cause error }

func (e *noClient) Error() string { return e.cause.Error() }
func (e *noClient) Unwrap() error { return e.cause }

// unsent says that a request never left.
type unsent struct{ cause error }

func (e *unsent) Error() string { return e.cause.Error() }
func (e *unsent) Unwrap() error { return e.cause }

// unanswered says whether an error means that the cluster did not give a proper answer: it was not reached, or said no
// more than that something is broken. A refusal is an answer.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errParked) {
		return false
	}
	if code := statusOf(err); code != 0 {
		return code >= http.StatusInternalServerError
	}
	return true
}

// statusOf is the HTTP status of the API server's answer; 0: there was none.
func statusOf(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// verdict is what a failed create request means.
type verdict int

const (
	maybeCreated verdict = iota // it may have been made, or may still be
	notCreated                  // it was not made; the same request may succeed later
	nameTaken                   // an object of that name exists
	noNamespace
	refused // it will never be made
)

// judge says what follows from the error of a create request.
func judge(err error) verdict {
	if left, no := (*unsent)(nil), (*noClient)(nil); errors.As(err, &left) || errors.As(err, &no) || errors.Is(err, errParked) {
		return notCreated
	}
	code := statusOf(err)
	switch {
	case code == 0 && dialFailed(err):
		return notCreated
	case code == 0, code >= http.StatusInternalServerError:
		return maybeCreated
	case apierrors.IsAlreadyExists(err):
		return nameTaken
	case code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusUnauthorized:
		return notCreated // another request was quicker, there are too many, or the credentials are being renewed
	case code == http.StatusNotFound:
		return noNamespace
	}
	return refused
}

// dialFailed says whether the connection was never made, so that nothing was sent.
func dialFailed(err error) bool {
	if utilnet.IsConnectionRefused(err) {
		return true
	}
	op, dns := (*net.OpError)(nil), (*net.DNSError)(nil)
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// patience returns how long the server asks to wait; 0: it does not say.
func patience(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// soon makes an error wait for as long as the server asks.
func soon(err error) error {
	if after := patience(err); after > 0 {
		return &later{after, err}
	}
	return err
}

// refusal is the sentence for people about a refused create.
func refusal(namespace, clusterName string, err error) string {
	return fmt.Sprintf("create jobs.batch in namespace %q on cluster %q: %v", namespace, clusterName, err)
}
