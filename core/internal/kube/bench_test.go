package kube

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// stubEnv makes the test binary serve the stub instead of testing.
const stubEnv = "NAGELFLUH_KUBE_STUB"

// serveStub is an API server as far as a probe needs one, in a process of its own: what it takes is not ours. It prints its
// kubeconfig and ends with its input.
func serveStub() {
	a := &api{}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			version(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"JobList","apiVersion":"batch/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	a.EnableHTTP2 = true
	a.StartTLS()
	fmt.Printf("%s\n\n", bytes.TrimSpace(a.kubeconfig("t")))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startStub returns the kubeconfig of a stub that ends with the benchmark.
func startStub(b *testing.B) []byte {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), stubEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	var text bytes.Buffer
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != ""; {
		text.WriteString(lines.Text() + "\n")
	}
	return text.Bytes()
}

// BenchmarkRegistryHit is what the client of a cluster costs that is connected.
func BenchmarkRegistryHit(b *testing.B) {
	r, _ := benchRegistry(b, 1000)
	if _, err := r.Get(b.Context(), "500"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Get(b.Context(), "500"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBuild is a client from a provider's answer: policy, transport, clientsets; nothing is dialled.
func BenchmarkBuild(b *testing.B) {
	r, _ := benchRegistry(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		r.Drop("0")
		if _, err := r.Get(b.Context(), "0"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRotation is an edit of the credentials, from the changed row until the client has them.
func BenchmarkRotation(b *testing.B) {
	r, w := benchRegistry(b, 1)
	r.o.Recheck = 1
	i := 0
	w.answer(func(context.Context, cluster.Cluster) (Connection, error) {
		return Connection{Kubeconfig: []byte(fmt.Sprintf(benchKubeconfig, strconv.Itoa(i)))}, nil
	})
	b.ReportAllocs()
	for b.Loop() {
		i++
		w.change("0", func(c *cluster.Cluster) { c.ConfigRevision++ })
		if c, err := r.Get(b.Context(), "0"); err != nil || c.link.current.Load().creds.token != strconv.Itoa(i) {
			b.Fatal(err)
		}
	}
}

// BenchmarkThousandClusters connects and probes 1,000 clusters, twice each, and says how long the first round took and
// what one of them holds: heap and stacks, and resident memory.
func BenchmarkThousandClusters(b *testing.B) {
	const n = 1000
	kubeconfig := startStub(b)
	for b.Loop() {
		r, w := benchRegistry(b, n)
		w.answer(gives(kubeconfig))
		held, resident := memory(b)
		began := time.Now()
		probeAll(b, r, n)
		start := time.Since(began)
		probeAll(b, r, n)
		heldNow, residentNow := memory(b)
		b.ReportMetric(start.Seconds(), "s-to-start")
		b.ReportMetric(float64(heldNow-held)/n/1000, "KB/cluster")
		b.ReportMetric(float64(residentNow-resident)/n/1000, "resident-KB/cluster")
		r.Close()
	}
}

// probeAll asks each cluster what a health check asks.
func probeAll(b *testing.B, r *Registry, n int) {
	ids := make(chan int)
	var probes sync.WaitGroup
	for range 32 {
		probes.Go(func() {
			for i := range ids {
				c, err := r.Get(b.Context(), strconv.Itoa(i))
				if err == nil {
					_, err = c.Probe().Discovery().ServerVersion()
				}
				if err == nil {
					_, err = c.Probe().BatchV1().Jobs(c.Namespace).List(b.Context(), metav1.ListOptions{})
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		ids <- i
	}
	close(ids)
	probes.Wait()
}

// memory is what this process holds after a collection, and what of it is resident (zero where that cannot be told).
func memory(b *testing.B) (held, resident int64) {
	b.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	raw, _ := os.ReadFile("/proc/self/statm")
	var size, pages int64
	_, _ = fmt.Sscan(string(raw), &size, &pages)
	return int64(m.HeapAlloc + m.StackInuse), pages * int64(os.Getpagesize())
}

const benchKubeconfig = `
clusters: [{name: c, cluster: {server: "https://cluster.example"}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]`

// benchRegistry knows clusters named by number.
func benchRegistry(b *testing.B, n int) (*Registry, *world) {
	w := newWorld(gives([]byte(fmt.Sprintf(benchKubeconfig, "t"))))
	for i := range n {
		w.rows[strconv.Itoa(i)] = cluster.Cluster{ID: strconv.Itoa(i), Type: "kubeconfig", ConfigRevision: 1}
	}
	r := NewRegistry(Options{Source: w, Connector: w, DefaultNamespace: "jobs", Recheck: time.Hour})
	b.Cleanup(r.Close)
	return r, w
}
