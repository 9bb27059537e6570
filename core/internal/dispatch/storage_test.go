package dispatch

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// withStorage is a rig whose project has storage. Ended Jobs go at once.
type withStorage struct {
	*real
	backend storage.Backend
}

func newStorage(t *testing.T, c *cluster.Cluster) *withStorage {
	t.Helper()
	r := &withStorage{real: newReal(t, c)}
	r.options.Storage, r.options.Retention, r.options.Resync = r.db, time.Millisecond, 300*time.Millisecond
	var err error
	if r.backend, err = r.db.CreateStorageBackend(t.Context(), storage.Backend{
		Name: "lake", Type: storage.S3, Endpoint: "https://s3.example.org", Region: "r", Bucket: "b", Prefix: "x",
		Credentials: storage.Credentials{AccessKeyID: "id-1", SecretAccessKey: "SECRET-MARK-1"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.UpdateProject(t.Context(), r.project, nil, func(p *project.Project) error { p.Storage = r.backend.ID; return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *withStorage) secrets() map[string]corev1.Secret {
	r.t.Helper()
	list, err := r.set.CoreV1().Secrets(r.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]corev1.Secret{}
	for _, s := range list.Items {
		out[s.Name] = s
	}
	return out
}

func (r *withStorage) name() string {
	b, _, err := r.db.StorageOf(context.Background(), r.project)
	if err != nil {
		r.t.Fatal(err)
	}
	return storage.AccessOf("test", r.project, b, nil).Secret
}

func (r *withStorage) credentials(id, key string) {
	r.t.Helper()
	if _, err := r.db.UpdateStorageBackend(r.t.Context(), r.backend.ID, nil, func(b *storage.Backend) error {
		b.Credentials = storage.Credentials{AccessKeyID: id, SecretAccessKey: key}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *withStorage) none() {
	r.t.Helper()
	r.when("no Secret is left", func() bool { return len(r.secrets()) == 0 }, func() any { return r.secrets() })
}

func TestStorageAtTheCluster(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Private: true, Specs: []cluster.Spec{{Name: "storage"}}})[0]

	t.Run("a Job gets it and the Secret goes with the last", func(t *testing.T) {
		r := newStorage(t, c)
		r.start()
		check := `[ "$NAGELFLUH_STORAGE_SECRET_ACCESS_KEY $AWS_ACCESS_KEY_ID $NAGELFLUH_STORAGE_PREFIX" = "SECRET-MARK-1 id-1 x/` + r.project + `/" ] && `
		long := r.run("sh", "-c", check+"sleep 3600")
		r.state(long, process.Running)
		r.state(r.run("sh", "-c", check+"true"), process.Succeeded)
		first := r.name()
		s, there := r.secrets()[first]
		if !there || s.Labels["nagelfluh.io/project"] != r.project || s.Labels["nagelfluh.io/storage"] != r.backend.ID || s.Labels["nagelfluh.io/installation"] != "test" {
			t.Errorf("Secret %s: %v", first, s.Labels)
		}
		jobs, err := r.set.BatchV1().Jobs(r.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs.Items {
			if raw, err := json.Marshal(j.Spec.Template.Spec.Containers[0].Env); err != nil || strings.Contains(string(raw), "SECRET-MARK") {
				t.Errorf("a Job shows the credentials: %s, %v", raw, err)
			}
		}

		// Changed credentials: a new Secret for new Jobs; the old one stays for as long as its Job.
		r.credentials("id-2", "SECRET-MARK-2")
		second := r.name()
		next := r.run("sh", "-c", `[ "$AWS_SECRET_ACCESS_KEY" = SECRET-MARK-2 ] && sleep 3600`)
		r.state(next, process.Running)
		if all := r.secrets(); len(all) != 2 || all[first].Name == "" || all[second].Name == "" {
			t.Errorf("Secrets %v, want %s and %s", all, first, second)
		}
		r.cancel(long)
		r.when("the old Secret is gone", func() bool { _, there := r.secrets()[first]; return !there }, nil)
		if _, there := r.secrets()[second]; !there {
			t.Error("the new one went as well")
		}
		r.cancel(next)
		r.none()
		r.when("none is noted any more", func() bool {
			left, err := r.db.SecretsOn(t.Context(), r.attempt(next).ClusterID)
			return err == nil && len(left) == 0
		}, nil)
	})

	t.Run("a stranger's Secret is left alone", func(t *testing.T) {
		r := newStorage(t, c)
		theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: r.name()}, Data: map[string][]byte{"a": []byte("b")}}
		if _, err := r.set.CoreV1().Secrets(r.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.start()
		v := r.run("true")
		end := r.state(v, process.Failed)
		if end.ReasonCode != reasonSecretConflict || !strings.Contains(end.Reason, theirs.Name) {
			t.Errorf("%s: %s", end.ReasonCode, end.Reason)
		}
		r.when("it is no longer noted", func() bool {
			left, err := r.db.SecretsOn(t.Context(), end.ClusterID)
			return err == nil && len(left) == 0
		}, nil)
		if s := r.secrets()[theirs.Name]; string(s.Data["a"]) != "b" || len(s.Data) != 1 {
			t.Errorf("it is %v now", s.Data)
		}
		r.created(0)
	})

	t.Run("rights are missing", func(t *testing.T) {
		r := newStorage(t, c)
		r.proxy.Add(faultproxy.Answer(http.StatusForbidden, http.Header{"Content-Type": {"application/json"}},
			`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"secrets is forbidden: no","reason":"Forbidden","code":403}`),
			faultproxy.On(http.MethodPost, "/secrets"))
		r.start()
		if end := r.state(r.run("true"), process.Failed); end.ReasonCode != reasonSecretRefused || strings.Contains(end.Reason, "SECRET-MARK") {
			t.Errorf("%s: %s", end.ReasonCode, end.Reason)
		}
		r.created(0)
	})

	t.Run("ours with other content is put right", func(t *testing.T) {
		r := newStorage(t, c)
		r.start()
		long := r.run("sleep", "3600")
		r.state(long, process.Running)
		r.stop()
		s := r.secrets()[r.name()]
		s.Data = map[string][]byte{"access-key-id": []byte("broken")}
		if _, err := r.set.CoreV1().Secrets(r.namespace).Update(t.Context(), &s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.start() // a new process makes sure of it at its first Job
		r.state(r.run("sh", "-c", `[ "$AWS_SECRET_ACCESS_KEY" = SECRET-MARK-1 ]`), process.Succeeded)
	})

	// The removal is held on its way to the API server. A Job that comes meanwhile waits for it and gets a new Secret.
	t.Run("a Job comes while the Secret is swept", func(t *testing.T) {
		r := newStorage(t, c)
		asked, pass := make(chan struct{}), make(chan struct{})
		r.proxy.Add(func(w http.ResponseWriter, q *http.Request, forward faultproxy.Forward) {
			close(asked)
			<-pass
			forward(w, nil)
		}, faultproxy.On(http.MethodDelete, "/secrets/"), faultproxy.Times(1))
		r.start()
		r.state(r.run("true"), process.Succeeded)
		<-asked
		v := r.run("sh", "-c", `[ "$AWS_SECRET_ACCESS_KEY" = SECRET-MARK-1 ]`)
		a := r.until(v, "its need is noted", func(a process.Attempt) bool {
			used, err := r.db.SecretUsed(t.Context(), storage.Secret{ClusterID: a.ClusterID, Namespace: r.namespace, Name: r.name()})
			return err == nil && used
		})
		if a.JobUID != "" {
			t.Error("the Job was made although its Secret was on its way out")
		}
		close(pass)
		r.state(v, process.Succeeded)
		r.none()
	})

	// A removal that was decided before another server took the Secret over is not carried out any more.
	t.Run("a late removal does no harm", func(t *testing.T) {
		r := newStorage(t, c)
		asked, pass, late := make(chan struct{}), make(chan struct{}), make(chan int, 1)
		r.proxy.Add(func(w http.ResponseWriter, q *http.Request, forward faultproxy.Forward) {
			close(asked)
			<-pass
			answer := httptest.NewRecorder()
			forward(answer, nil)
			late <- answer.Code
			panic(http.ErrAbortHandler)
		}, faultproxy.On(http.MethodDelete, "/secrets/"), faultproxy.Times(1))
		r.start()
		r.state(r.run("true"), process.Succeeded)
		<-asked
		before := r.secrets()[r.name()]
		// What the first create of another process does.
		before.Annotations[annotationTaken] = "later"
		if _, err := r.set.CoreV1().Secrets(r.namespace).Update(t.Context(), &before, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		close(pass)
		if code := <-late; code != http.StatusConflict {
			t.Errorf("the late removal was answered with %d, want 409", code)
		}
		r.none() // nobody needs it after all: the next sweep reads it anew
	})
}
