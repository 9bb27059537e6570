package logs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// BenchmarkFollow measures 1,000,000 lines from the cluster through the spool to a reader, beside a bare read of the same
// answer.
func BenchmarkFollow(b *testing.B) {
	var stamped bytes.Buffer
	size := 0
	for i := range 1_000_000 {
		line := fmt.Sprintf("%07d the quick brown fox jumps over the lazy dog, again and again and again\n", i)
		size += len(line)
		stamped.WriteString(t0.Add(time.Duration(i) * 50 * time.Microsecond).Format("2006-01-02T15:04:05.000000000Z07:00 "))
		stamped.WriteString(line)
	}
	setup := func(b *testing.B) *rig {
		r := newRig(b, nil)
		r.k.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			answer := stamped.Bytes()
			if since, err := time.Parse(time.RFC3339, q.URL.Query().Get("sinceTime")); err == nil {
				if i := bytes.Index(answer, []byte("\n"+since.Format("2006-01-02T15:04:05."))); i >= 0 {
					answer = answer[i+1:]
				}
			}
			_, _ = w.Write(answer)
		})
		b.SetBytes(int64(size))
		return r
	}
	b.Run("direct", func(b *testing.B) {
		r := setup(b)
		for b.Loop() {
			body, err := r.k.src.Logs(b.Context(), "c", "jobs", "pod", "main", SourceOptions{Follow: true})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, body); err != nil {
				b.Fatal(err)
			}
			_ = body.Close()
		}
	})
	b.Run("kept", func(b *testing.B) {
		r := setup(b)
		for i := 0; b.Loop(); i++ {
			a := r.rows.set(fmt.Sprint("a", i), func(a *process.Attempt) { a.ID, a.JobUID, a.State = fmt.Sprint("a", i), "u", process.Running })
			seq, err := r.reader.Follow(b.Context(), a.ID, FollowOptions{Follow: true})
			if err != nil {
				b.Fatal(err)
			}
			r.keeper.Ensure(a, []*corev1.Pod{pod("pod", running("main"))})
			read := 0
			for c, err := range seq {
				if err != nil {
					b.Fatal(err)
				}
				if read += len(c.Data); read == size {
					break
				}
			}
			b.StopTimer()
			r.keeper.forget(a.ID)
			_ = removeSpool(r.o.SpoolDir, a.ID)
			b.StartTimer()
		}
	})
}

// BenchmarkMemory measures what one follow of a silent container holds in this process, connection included.
func BenchmarkMemory(b *testing.B) {
	const follows = 500
	for b.Loop() {
		r := newRig(b, nil)
		r.k.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, _ = w.Write([]byte(t0.Format(time.RFC3339Nano) + " one line\n"))
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
		})
		before := inUse()
		for i := range follows {
			r.keeper.Ensure(process.Attempt{ID: fmt.Sprint("a", i), ClusterID: "c", Namespace: "jobs"}, []*corev1.Pod{pod("pod", running("main"))})
		}
		for i := range follows {
			s := r.keeper.live(fmt.Sprint("a", i)).streams[streamKey{pod: "pod", container: "main"}]
			for grew := s.grew.wait(); s.size.Load() == 0; grew = s.grew.wait() {
				<-grew
			}
		}
		// The test's server is in this process too, so this is an upper bound.
		b.ReportMetric(float64(inUse()-before)/follows, "B/follow")
		_ = r.keeper.Close()
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
