package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/permission"
)

const (
	anonymous = "system:anonymous"
	// reviewsAtOnce bounds the questions about permissions that are open at a time.
	reviewsAtOnce = 8
	// nobody is a name that no object has: what is listed by it stays empty, whatever the cluster holds.
	nobody = "nagelfluh-probe"
)

// Answers to a question about a permission.
const (
	yes     = "yes"
	no      = "no"
	unknown = "unknown"
)

var named = regexp.MustCompile(`User "([^"]*)" cannot`)

// identify makes sure that the cluster knows the account: an address that tells everybody its version proves nothing. It
// asks what only accounts may ask, until an answer says who is asking; a 403 names the account too.
func (r *run) identify() bool {
	r.steps.begin("credentials")
	var last error
	for _, ask := range []func(context.Context) (string, error){r.whoAmI, r.mayCreate, r.listJobs} {
		user, err := ask(r.ctx)
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			if m := named.FindStringSubmatch(status.Status().Message); m != nil {
				user = m[1]
			}
		}
		switch {
		case user == anonymous && err != nil:
			return r.failAnonymous(int(status.Status().Code))
		case user == anonymous:
			return r.failAnonymous(0)
		case err == nil, user != "" && kube.Classify(err) == kube.Permissions:
			r.report.User = user
			r.steps.pass(user)
			return true
		case !unanswered(err):
			return r.fail(err)
		}
		last = err
	}
	if kube.Classify(last) != kube.Permissions {
		return r.fail(last)
	}
	r.steps.pass("the cluster does not say who the account is")
	return true
}

// unanswered says whether the account may not ask, or the cluster does not know the question: an old one says so in plain
// text, and so does what stands before some clusters and lets nothing through but reading.
func unanswered(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// whoAmI asks for the name; clusters know the question since 1.28.
func (r *run) whoAmI(ctx context.Context) (string, error) {
	review, err := r.trial.Probe().AuthenticationV1().SelfSubjectReviews().Create(ctx, &authn.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if slices.Contains(review.Status.UserInfo.Groups, "system:unauthenticated") {
		return anonymous, nil
	}
	return review.Status.UserInfo.Username, nil
}

func (r *run) mayCreate(ctx context.Context) (string, error) {
	_, err := r.allowed(ctx, permission.Checks(r.trial.Namespace, "")[0])
	return "", err
}

// listJobs and listPods are questions that need no review and change nothing.
func (r *run) listJobs(ctx context.Context) (string, error) {
	_, err := r.trial.Probe().BatchV1().Jobs(r.trial.Namespace).List(ctx, empty())
	return "", err
}

func (r *run) listPods(ctx context.Context) (string, error) {
	_, err := r.trial.Probe().CoreV1().Pods(r.trial.Namespace).List(ctx, empty())
	return "", err
}

func empty() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + nobody, ResourceVersion: "0"}
}

// permit asks for every line of the table of permissions.
func (r *run) permit() bool {
	r.steps.begin("permissions")
	checks := permission.Checks(r.trial.Namespace, r.report.User)
	answers := make([]string, len(checks))
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		denied bool // the account may not ask
		failed error
	)
	slots := make(chan struct{}, reviewsAtOnce)
	for i, c := range checks {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			mu.Lock()
			skip := denied || failed != nil
			mu.Unlock()
			answers[i] = unknown
			if skip {
				return
			}
			ok, err := r.allowed(r.ctx, c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && ok:
				answers[i] = yes
			case err == nil:
				answers[i] = no
			case unanswered(err):
				denied = true
			default:
				failed = cmp.Or(failed, err)
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return r.fail(failed)
	}
	for i, c := range checks {
		if answers[i] == unknown && c.Need == permission.Essential && c.Verb == "list" {
			answer, err := r.tryList(c)
			if err != nil {
				return r.fail(err)
			}
			answers[i] = answer
		}
		r.report.Permissions = append(r.report.Permissions, cluster.Permission{
			Verb: c.Verb, Group: c.Group, Resource: c.Resource, Namespace: c.Namespace,
			Required: c.Need != permission.Optional, Allowed: answers[i], Lost: c.Lost,
		})
	}
	return r.weigh(checks, answers, denied)
}

// tryList finds out by doing it.
func (r *run) tryList(c permission.Check) (string, error) {
	list := r.listJobs
	if c.Resource == "pods" {
		list = r.listPods
	}
	switch _, err := list(r.ctx); kube.Classify(err) {
	case kube.OK:
		return yes, nil
	case kube.Permissions:
		return no, nil
	default:
		return unknown, err
	}
}

// weigh says what the answers mean: without an essential permission no Job runs, without a required one something is lost.
func (r *run) weigh(checks []permission.Check, answers []string, denied bool) bool {
	var missing, lost []string
	for i, c := range checks {
		switch what := cannot(c); {
		case answers[i] != no:
		case c.Need == permission.Essential:
			missing = append(missing, what)
		case c.Need == permission.Required && !slices.Contains(lost, c.Lost):
			lost = append(lost, c.Lost)
			r.warn(upper(c.Lost) + ": the account " + what + ".")
		}
	}
	if len(missing) > 0 {
		who := "The account"
		if r.report.User != "" {
			who += " " + r.report.User
		}
		message := who + " " + missing[0]
		if more := len(missing) - 1; more > 0 {
			message += fmt.Sprintf(", nor %s", plural(more, "other thing that Jobs need", "other things that Jobs need"))
		}
		r.failWith(kube.Permissions, 0, message+".", "Give it the permissions of docs/operations/permissions.md in the namespace "+r.trial.Namespace+".")
		r.look() // what is there is worth knowing all the same
		return false
	}
	note := ""
	if denied {
		note = "could not be checked: the account may not ask for its permissions"
		r.warn("The permissions could not be checked: the account may not ask for them. What it may not do is said by the first Job.")
	}
	r.steps.pass(note)
	return true
}

// cannot is a sentence on a permission that is missing.
func cannot(c permission.Check) string {
	text := fmt.Sprintf("cannot %s %s", c.Verb, c.Resource)
	switch {
	case c.Namespace == "":
		return text + " in the cluster"
	case c.Name != "":
		return text + " " + c.Name
	}
	return text + " in " + c.Namespace
}

// allowed asks for one permission. A review is no object: nothing is stored by it.
func (r *run) allowed(ctx context.Context, c permission.Check) (bool, error) {
	resource, sub := c.Split()
	review, err := r.trial.Probe().AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authz.SelfSubjectAccessReview{
		Spec: authz.SelfSubjectAccessReviewSpec{ResourceAttributes: &authz.ResourceAttributes{
			Namespace: c.Namespace, Verb: c.Verb, Group: c.Group, Resource: resource, Subresource: sub, Name: c.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
