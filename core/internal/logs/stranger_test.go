package logs

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The entry of a cluster leads to another one for a while, which knows nothing of the pod: its log is not over.
func TestB52AnotherClustersNotFoundEndsNoLog(t *testing.T) {
	source := &struct{ Source }{}
	r := newRig(t, func(o *KeeperOptions) { o.Source = source })
	var away atomic.Bool
	var refusals atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/namespaces/kube-system"):
			uid := types.UID("home")
			if away.Load() {
				uid = "another"
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}})
		case strings.HasSuffix(req.URL.Path, "/log") && !away.Load():
			r.k.serve(w, req)
		default:
			refusals.Add(1)
			refuse(w, fault{status: http.StatusNotFound, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`})
		}
	}))
	t.Cleanup(front.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: front.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	source.Source = Clients(func(context.Context, string) (kubernetes.Interface, error) { return client, nil })

	r.rows.set(id, func(a *process.Attempt) { a.ClusterIdentity = "home" })
	r.k.print("pod/main", lines(1, 3)...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(lines(1, 3))))
	away.Store(true)
	front.CloseClientConnections()
	g.await("the trouble is told", func() bool { return strings.Contains(strings.Join(g.notes(), " "), "another cluster answers") })
	if refusals.Load() == 0 {
		t.Error("the other cluster was never asked: the test shows nothing")
	}
	away.Store(false)
	r.k.print("pod/main", lines(4, 6)...)
	r.k.end("pod/main")
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if got := g.wait(); !m.Complete() || got != text(lines(1, 6)) {
		t.Error(differ(got, text(lines(1, 6))))
	}
}
