package process

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// resources checks requests and limits and writes them canonically, so that "1000m" GPUs and "1" are the same
// submission. Of an extended resource Kubernetes takes only whole numbers with request = limit; where one of the two
// is given, the other follows from it.
func (c *checker) resources(s *Spec) {
	requests := c.quantities("spec.requests", s.Requests)
	limits := c.quantities("spec.limits", s.Limits)
	for _, name := range sorted(requests) {
		request, limit := requests[name], limits[name]
		switch {
		case request == nil || (limit == nil && s.Limits[name] != ""):
			// the fault of the quantity itself is said already
		case limit == nil && pinned(name):
			limits[name] = request
		case limit == nil:
		case pinned(name) && request.Cmp(*limit) != 0:
			c.add("spec.limits["+name+"]", "is %s, the request %s: of this resource Kubernetes wants both equal; give one of them", limit, request)
		case request.Cmp(*limit) > 0:
			c.add("spec.limits["+name+"]", "is %s, less than the request %s", limit, request)
		}
	}
	for _, name := range sorted(limits) {
		if _, given := s.Requests[name]; !given && limits[name] != nil && pinned(name) {
			requests[name] = limits[name]
		}
	}
	s.Requests, s.Limits = canonical(requests), canonical(limits)
}

func canonical(in map[string]*resource.Quantity) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for name, q := range in {
		if q != nil {
			out[name] = q.String()
		}
	}
	return out
}

// quantities parses; a resource with a fault maps to nil.
func (c *checker) quantities(field string, in map[string]string) map[string]*resource.Quantity {
	out := make(map[string]*resource.Quantity, len(in))
	for _, name := range sorted(in) {
		out[name] = c.quantity(field+"["+name+"]", name, in[name])
	}
	return out
}

func (c *checker) quantity(field, name, text string) *resource.Quantity {
	if !resourceName(name) {
		c.add(field, "is no resource: want cpu, memory, ephemeral-storage, hugepages-<size>, or an extended one such as nvidia.com/gpu")
		return nil
	}
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		c.add(field, "%q is no Kubernetes quantity: want one such as 2, 500m or 4Gi", text)
	case q.Sign() < 0:
		c.add(field, "%q is negative", text)
	case q.CmpInt64(maxQuantity) > 0:
		c.add(field, "%q is more than any cluster holds", text)
	case extended(name) && !whole(q, units):
		c.add(field, "%q is no whole number: %s is given out whole", text, name)
	case name == "cpu" && !whole(q, resource.Milli):
		c.add(field, "%q is finer than a thousandth of a core (1m)", text)
	case name != "cpu" && !extended(name) && !whole(q, units):
		c.add(field, "%q is no whole number of bytes", text)
	default:
		// The parsed quantity remembers how it was written; a copy through the number does not.
		exact := resource.MustParse(q.String())
		return &exact
	}
	return nil
}

// maxQuantity keeps sums within 64 bits, also in thousandths.
const maxQuantity = 1 << 53

// units is the scale of whole numbers.
const units resource.Scale = 0

// whole says whether q is a whole multiple of the scale.
func whole(q resource.Quantity, scale resource.Scale) bool {
	rounded := q.DeepCopy()
	return rounded.RoundUp(scale)
}

// pinned resources have request = limit.
func pinned(name string) bool { return extended(name) || strings.HasPrefix(name, "hugepages-") }

func extended(name string) bool { return strings.Contains(name, "/") }

func resourceName(name string) bool {
	switch {
	case name == "cpu", name == "memory", name == "ephemeral-storage":
		return true
	case strings.HasPrefix(name, "hugepages-"):
		size, err := resource.ParseQuantity(strings.TrimPrefix(name, "hugepages-"))
		return err == nil && size.Sign() > 0
	case extended(name):
		domain, _, _ := strings.Cut(name, "/")
		return len(validation.IsQualifiedName(name)) == 0 && len(validation.IsQualifiedName("requests."+name)) == 0 &&
			domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, "requests.")
	}
	return false
}
