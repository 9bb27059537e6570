package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// api is a small API server in memory: Jobs, pods, events and namespaces, with watches. It has no controllers: the test
// plays their part, so that it decides the order of what happens. Around each request a test may put its own doing.
type api struct {
	t      *testing.T
	server *httptest.Server
	closed chan struct{}

	mu      sync.Mutex
	changed *sync.Cond
	version int64
	jobs    map[string]*batchv1.Job // by namespace/name
	pods    map[string]*corev1.Pod
	events  []corev1.Event
	// lease is the Lease of the namespace: at first one that nobody holds; nil: the account has no right to it.
	lease      *coordinationv1.Lease
	renewals   int
	namespaces map[string]string // UID by name
	log        []logged          // of changes, for watches
	posts      []*http.Request
	deletes    []metav1.DeleteOptions
	// makesNamespaces lets namespaces be created.
	makesNamespaces bool
	around          func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
}

type logged struct {
	version int64
	kind    string // jobs or pods
	event   string
	object  metav1.Object
}

func newAPI(t *testing.T) *api {
	a := &api{
		t: t, closed: make(chan struct{}), jobs: map[string]*batchv1.Job{}, pods: map[string]*corev1.Pod{},
		namespaces: map[string]string{"kube-system": "identity-1", "jobs": "jobs-1"}, version: 1,
		lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: "jobs", ResourceVersion: "1"}},
	}
	a.changed = sync.NewCond(&a.mu)
	a.server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() {
		close(a.closed)
		a.mu.Lock()
		a.changed.Broadcast()
		a.mu.Unlock()
		a.server.CloseClientConnections()
		a.server.Close()
		// B48: whatever the test was about, no delete leaves pods behind or hits another Job.
		for _, o := range a.deletes {
			if o.PropagationPolicy == nil || *o.PropagationPolicy == metav1.DeletePropagationOrphan || o.Preconditions == nil || o.Preconditions.UID == nil {
				t.Errorf("a Job was deleted with the options %+v", o)
			}
		}
	})
	return a
}

// client returns a client with a transport of its own, closed with the test.
func (a *api) client(id string) *kube.Client {
	transport := &http.Transport{}
	a.t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: a.server.URL, QPS: -1, Transport: transport, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		a.t.Fatal(err)
	}
	return &kube.Client{ClusterID: id, Namespace: "jobs", Clientset: set, Config: config}
}

// surround puts f around every request from now on; nil: nothing.
func (a *api) surround(f func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.around = f
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	around := a.around
	a.mu.Unlock()
	if around != nil {
		around(w, r, a.handle)
		return
	}
	a.handle(w, r)
}

func (a *api) handle(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	// apis/batch/v1/namespaces/NS/jobs[/NAME] or api/v1/namespaces/NS[/pods]
	for i, p := range parts {
		if p != "namespaces" {
			continue
		}
		rest := parts[i+1:]
		switch {
		case len(rest) == 0:
			a.makeNamespace(w, r)
		case len(rest) == 1:
			a.namespace(w, rest[0])
		case rest[1] == "leases":
			a.leases(w, r)
		case rest[1] == "jobs" && r.Method == http.MethodPost:
			a.create(w, r, rest[0])
		case rest[1] == "jobs" && len(rest) == 3 && r.Method == http.MethodGet:
			a.get(w, rest[0]+"/"+rest[2])
		case rest[1] == "jobs" && len(rest) == 3 && r.Method == http.MethodDelete:
			a.delete(w, r, rest[0]+"/"+rest[2])
		case r.Method == http.MethodGet:
			a.list(w, r, rest[0], rest[1])
		default:
			status(w, 405, "MethodNotAllowed", "no")
		}
		return
	}
	status(w, 404, "NotFound", "no such path "+r.URL.Path)
}

func status(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	answer(w, int(code), &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *api) namespace(w http.ResponseWriter, name string) {
	a.mu.Lock()
	uid, found := a.namespaces[name]
	a.mu.Unlock()
	if !found {
		status(w, 404, metav1.StatusReasonNotFound, "namespaces "+strconv.Quote(name)+" not found")
		return
	}
	answer(w, 200, &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)},
	})
}

func (a *api) leases(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == nil {
		status(w, 403, metav1.StatusReasonForbidden, "leases.coordination.k8s.io is forbidden")
		return
	}
	if r.Method == http.MethodPut {
		next := &coordinationv1.Lease{}
		_ = json.NewDecoder(r.Body).Decode(next)
		if next.ResourceVersion != a.lease.ResourceVersion {
			status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
			return
		}
		a.renewals++
		a.version++
		next.ResourceVersion = strconv.FormatInt(a.version, 10)
		a.lease = next
	}
	out := a.lease.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	answer(w, 200, out)
}

func (a *api) makeNamespace(w http.ResponseWriter, r *http.Request) {
	var ns corev1.Namespace
	_ = json.NewDecoder(r.Body).Decode(&ns)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.makesNamespaces {
		status(w, 403, metav1.StatusReasonForbidden, "namespaces is forbidden")
		return
	}
	a.namespaces[ns.Name] = "made"
	answer(w, 201, &ns)
}

func (a *api) create(w http.ResponseWriter, r *http.Request, ns string) {
	var j batchv1.Job
	if err := json.NewDecoder(r.Body).Decode(&j); err != nil {
		status(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts = append(a.posts, r)
	if _, found := a.namespaces[ns]; !found {
		status(w, 404, metav1.StatusReasonNotFound, "namespaces "+strconv.Quote(ns)+" not found")
		return
	}
	key := ns + "/" + j.Name
	if old := a.jobs[key]; old != nil {
		message := fmt.Sprintf("jobs.batch %q already exists", j.Name)
		if old.DeletionTimestamp != nil {
			message = "object is being deleted: " + message
		}
		status(w, 409, metav1.StatusReasonAlreadyExists, message)
		return
	}
	j.Namespace, j.UID = ns, uuid.NewUUID()
	j.CreationTimestamp = metav1.Now()
	a.setJob(&j, "ADDED")
	answer(w, 201, &j)
}

func (a *api) get(w http.ResponseWriter, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[key]; j != nil {
		answer(w, 200, j)
		return
	}
	status(w, 404, metav1.StatusReasonNotFound, "jobs.batch "+key+" not found")
}

func (a *api) delete(w http.ResponseWriter, r *http.Request, key string) {
	var o metav1.DeleteOptions
	_ = json.NewDecoder(r.Body).Decode(&o)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deletes = append(a.deletes, o)
	j := a.jobs[key]
	switch {
	case j == nil:
		status(w, 404, metav1.StatusReasonNotFound, "not found")
		return
	case o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != j.UID:
		status(w, 409, metav1.StatusReasonConflict, "the UID in the precondition does not match")
		return
	case len(j.Finalizers) > 0:
		j = j.DeepCopy()
		now := metav1.Now()
		j.DeletionTimestamp = &now
		a.setJob(j, "MODIFIED")
	default:
		a.dropJob(key)
	}
	answer(w, 200, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

func (a *api) list(w http.ResponseWriter, r *http.Request, ns, kind string) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil || q.Get("sendInitialEvents") == "true" {
		status(w, 422, metav1.StatusReasonInvalid, "not supported")
		return
	}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		a.watch(w, r, ns, kind, selector)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(a.version, 10)}
	switch kind {
	case "jobs":
		list := batchv1.JobList{TypeMeta: metav1.TypeMeta{Kind: "JobList", APIVersion: "batch/v1"}, ListMeta: meta}
		for _, j := range a.jobs {
			if j.Namespace == ns && selector.Matches(labels.Set(j.Labels)) {
				list.Items = append(list.Items, *j)
			}
		}
		answer(w, 200, &list)
	case "pods":
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: meta}
		for _, p := range a.pods {
			if p.Namespace == ns && selector.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, *p)
			}
		}
		answer(w, 200, &list)
	case "events":
		answer(w, 200, &corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, ListMeta: meta, Items: a.events})
	default:
		status(w, 404, metav1.StatusReasonNotFound, "no such kind")
	}
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, ns, kind string, selector labels.Selector) {
	since, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	done := r.Context().Done()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // wakes the loop when the client leaves
		select {
		case <-done:
		case <-stop:
			return
		}
		a.mu.Lock()
		a.changed.Broadcast()
		a.mu.Unlock()
	}()
	for at := 0; ; {
		a.mu.Lock()
		for at >= len(a.log) && r.Context().Err() == nil && !a.isClosed() {
			a.changed.Wait()
		}
		if r.Context().Err() != nil || a.isClosed() {
			a.mu.Unlock()
			return
		}
		e := a.log[at]
		a.mu.Unlock()
		at++
		if e.version <= since || e.kind != kind || e.object.GetNamespace() != ns || !selector.Matches(labels.Set(e.object.GetLabels())) {
			continue
		}
		if json.NewEncoder(w).Encode(map[string]any{"type": e.event, "object": e.object}) != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

func (a *api) isClosed() bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}

// record appends a change for the watches; a.mu is held.
func (a *api) record(kind, event string, o metav1.Object) {
	a.version++
	o.SetResourceVersion(strconv.FormatInt(a.version, 10))
	a.log = append(a.log, logged{a.version, kind, event, o})
	a.changed.Broadcast()
}

func (a *api) setJob(j *batchv1.Job, event string) {
	j.TypeMeta = metav1.TypeMeta{Kind: "Job", APIVersion: "batch/v1"}
	a.jobs[j.Namespace+"/"+j.Name] = j
	a.record("jobs", event, j)
}

func (a *api) dropJob(key string) {
	j := a.jobs[key].DeepCopy()
	delete(a.jobs, key)
	a.record("jobs", "DELETED", j)
}

// change changes the only Job that there is.
func (a *api) change(f func(j *batchv1.Job)) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.jobs) != 1 {
		a.t.Fatalf("there are %d Jobs, want one", len(a.jobs))
	}
	for _, j := range a.jobs {
		j = j.DeepCopy()
		f(j)
		a.setJob(j, "MODIFIED")
	}
}

// drop removes the only Job, with an event or without.
func (a *api) drop(silently bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.jobs {
		if silently {
			delete(a.jobs, key)
		} else {
			a.dropJob(key)
		}
	}
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.jobs)
}

func (a *api) posted() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.posts)
}

func (a *api) only() *batchv1.Job {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		return j.DeepCopy()
	}
	return nil
}

// pod sets the pod of the only Job, or of the attempt whose labels are given.
func (a *api) pod(owner map[string]string, set func(p *corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	event := "MODIFIED"
	p := a.pods["jobs/pod"]
	if p == nil {
		event = "ADDED"
		p = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "jobs", UID: uuid.NewUUID(), Labels: owner, CreationTimestamp: metav1.Now()},
			Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
		}
	}
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	set(p)
	a.pods["jobs/pod"] = p
	a.record("pods", event, p)
}

func (a *api) dropPod() {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods["jobs/pod"].DeepCopy()
	delete(a.pods, "jobs/pod")
	a.record("pods", "DELETED", p)
}

func running(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
}

func exited(code int32) func(p *corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, StartedAt: metav1.NewTime(time.Now().Add(-time.Second)), FinishedAt: metav1.Now(),
			}},
		}}
	}
}

func completed(j *batchv1.Job) { conclude(j, batchv1.JobComplete, "") }

func failedJob(j *batchv1.Job) {
	conclude(j, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	j.Status.Failed = 1
}

func conclude(j *batchv1.Job, kind batchv1.JobConditionType, reason string) {
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(),
	})
}
