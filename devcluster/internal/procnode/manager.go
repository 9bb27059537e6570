package procnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// manager runs the pods that are bound to the nodes of this process.
type manager struct {
	client   kubernetes.Interface
	launcher *launcher
	dir      string
	sources  sources
	recorder record.EventRecorder
	events   record.EventBroadcaster
	// dirty are the pods whose status or object at the API server is behind.
	dirty workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.Mutex
	pods    map[types.UID]*pod
	byName  map[types.NamespacedName]*pod
	closing bool
}

func newManager(client kubernetes.Interface, launcher *launcher, dir string) *manager {
	events := record.NewBroadcaster()
	return &manager{
		client: client, launcher: launcher, dir: dir, sources: apiSources{client},
		events:   events,
		recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"}),
		dirty: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 5*time.Second)),
		pods:   map[types.UID]*pod{},
		byName: map[types.NamespacedName]*pod{},
	}
}

// statusWriters is how many pods' statuses are written at a time. Few: a burst
// then skips states that were over before they could be told.
const statusWriters = 8

// start watches the pods of this process' nodes until ctx ends. The function
// that it returns ends all pods' processes.
func (m *manager) start(ctx context.Context) (stop func()) {
	m.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: m.client.CoreV1().Events("")})
	// The nodes of this process are all nodes there are.
	watch := cache.NewListWatchFromClient(m.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		fields.OneTermNotEqualSelector("spec.nodeName", ""))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch,
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { m.observe(object.(*corev1.Pod)) },
			UpdateFunc: func(_, object any) { m.observe(object.(*corev1.Pod)) },
			DeleteFunc: func(object any) {
				if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = unknown.Obj
				}
				if gone, ok := object.(*corev1.Pod); ok {
					m.gone(gone.UID)
				}
			},
		},
		Transform: func(object any) (any, error) {
			if p, ok := object.(*corev1.Pod); ok {
				p.ManagedFields = nil // half of a pod, and nobody's business here
			}
			return object, nil
		},
	})
	go informer.RunWithContext(ctx)
	for range statusWriters {
		go m.writeStatuses()
	}
	return func() {
		m.mu.Lock()
		m.closing = true
		pods := make([]*pod, 0, len(m.pods))
		for _, p := range m.pods {
			pods = append(pods, p)
		}
		m.mu.Unlock()
		for _, p := range pods {
			p.kill(2*time.Second, "", "")
		}
		for _, p := range pods {
			<-p.ended
		}
		// Nodes go down without a last word, as machines do.
		m.dirty.ShutDown()
		m.events.Shutdown()
	}
}

// observe takes note of a pod as it is at the API server.
func (m *manager) observe(object *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return
	}
	if known := m.pods[object.UID]; known != nil {
		known.observe(object)
		return
	}
	if object.DeletionTimestamp == nil && (object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed) {
		return // of an earlier run of this program; nothing to do
	}
	p := newPod(m, object)
	m.pods[object.UID] = p
	m.byName[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}] = p
	if lost := p.lostContainers(); lost || object.DeletionTimestamp != nil {
		p.observe(object)
		close(p.ended)
		m.dirty.Add(object.UID)
		return
	}
	go p.run()
}

// gone forgets a pod whose object is gone, once its processes are.
func (m *manager) gone(uid types.UID) {
	m.mu.Lock()
	p := m.pods[uid]
	m.mu.Unlock()
	if p == nil {
		return
	}
	p.kill(time.Second, "", "")
	go func() {
		<-p.ended
		m.mu.Lock()
		delete(m.pods, uid)
		name := types.NamespacedName{Namespace: p.namespace, Name: p.name}
		if m.byName[name] == p {
			delete(m.byName, name)
		}
		m.mu.Unlock()
		m.dirty.Forget(uid)
		_ = os.RemoveAll(filepath.Join(m.dir, string(uid)))
	}()
}

// find returns the pod for a request for its logs.
func (m *manager) find(namespace, name string) *pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byName[types.NamespacedName{Namespace: namespace, Name: name}]
}

func (m *manager) writeStatuses() {
	for {
		uid, shutdown := m.dirty.Get()
		if shutdown {
			return
		}
		m.mu.Lock()
		p := m.pods[uid]
		m.mu.Unlock()
		var err error
		if p != nil {
			err = m.write(p)
		}
		if err != nil {
			logf("pod %s/%s: %v", p.namespace, p.name, err)
			m.dirty.AddRateLimited(uid)
		} else {
			m.dirty.Forget(uid)
		}
		m.dirty.Done(uid)
	}
}

// write brings the API server up to date: first the status, then, when the pod
// was deleted and all its processes are gone, the end of the object.
func (m *manager) write(p *pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	patch, sent := p.statusPatch()
	if patch != nil {
		_, err := m.client.CoreV1().Pods(p.namespace).Patch(ctx, p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if isGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("write its status: %w", err)
		}
		p.statusSent(sent)
	}
	if !p.deletable() {
		return nil
	}
	now := int64(0)
	err := m.client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &p.uid},
	})
	if err != nil && !isGone(err) {
		return fmt.Errorf("finish its deletion: %w", err)
	}
	return nil
}

// isGone says that the pod is no more, or is another one of the same name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
