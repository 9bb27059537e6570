package health

import (
	"context"
	"strings"
	"time"

	authz "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/permission"
)

// refusedRights asks for the rights without which no Job runs and returns those that the account has not, such as "create
// jobs". A cluster that does not let it ask is no refusal.
func refusedRights(ctx context.Context, client *kube.Client) (refused []string, err error) {
	reviews := client.Probe().AuthorizationV1().SelfSubjectAccessReviews()
	for _, check := range permission.Checks(client.Namespace, "") {
		if check.Need != permission.Essential {
			continue
		}
		resource, sub := check.Split()
		review, err := reviews.Create(ctx, &authz.SelfSubjectAccessReview{Spec: authz.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authz.ResourceAttributes{Namespace: check.Namespace, Verb: check.Verb, Group: check.Group, Resource: resource, Subresource: sub},
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			refused = append(refused, check.Verb+" "+check.Resource)
		}
	}
	return refused, nil
}

// judgeRights says whether the account may do what every Job needs, as far as was asked.
func (c *check) judgeRights(now time.Time) {
	if len(c.refused) == 0 {
		c.set(cluster.Permitted, cluster.True, "", "", now)
		return
	}
	c.set(cluster.Permitted, cluster.False, string(kube.Permissions), "In the namespace of the jobs the account may not "+strings.Join(c.refused, ", ")+".", now)
}
