package dispatch

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// unsent says that a request never left.
type unsent struct{ cause error }

func (e *unsent) Error() string { return e.cause.Error() }
func (e *unsent) Unwrap() error { return e.cause }

// unanswered says whether an error means that the cluster did not give a proper answer: it was not reached, or said no
// more than that something is broken. A refusal is an answer.
func unanswered(err error) bool {
	if err == nil || errors.Is(err, errParked) {
		return false
	}
	switch class := kube.Classify(err); class {
	case kube.Server, kube.NotKubernetes, kube.Credentials, kube.Other:
		return true
	default:
		return class.Unreachable()
	}
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
	if left := (*unsent)(nil); errors.As(err, &left) || errors.Is(err, errParked) || dialFailed(err) {
		return notCreated
	}
	if passing(err) {
		return notCreated
	}
	switch kube.Classify(err) {
	case kube.DNS, kube.Denied, kube.Refused, kube.TLS, kube.Provider:
		return notCreated
	case kube.Conflict, kube.Throttled, kube.Credentials:
		return notCreated // another request was quicker, there are too many, or the credentials are being renewed
	case kube.Exists:
		return nameTaken
	case kube.NotFound:
		return noNamespace
	case kube.Permissions, kube.Invalid, kube.Gone:
		return refused
	}
	return maybeCreated
}

// passing says whether a refusal is one of the moment: the namespace is being deleted and can be made anew, or a quota is
// used up and is given back when something ends.
func passing(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// dialFailed says whether the connection was never made, so that nothing was sent.
func dialFailed(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "dial"
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
