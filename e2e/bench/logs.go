package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// follows: a log of 1,000,000 lines from its first byte to its last, through the server against a follow by client-go, each
// of a Job that prints the same file; and what the server holds for each of many followers.
func follows(ctx context.Context, b *bench) ([]row, error) {
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()
	lines := 1_000_000
	if b.quick {
		lines /= 20
	}
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, "%07d the quick brown fox jumps over the lazy dog\n", i)
	}
	file := filepath.Join(b.dir, "printed.txt")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	// The mark says that the follow is open; what is timed comes after it.
	script := []string{"sh", "-c", "echo ready; sleep 3; cat '" + file + "'; sleep 2"}
	var ours, direct, stamped []float64
	turns := []struct {
		follow func(context.Context, int, []string, []byte) (float64, error)
		rates  *[]float64
	}{{w.followOurs, &ours}, {w.followDirect, &direct}, {w.followStamped, &stamped}}
	for i := range b.pairs {
		for _, turn := range turns {
			rate, err := turn.follow(ctx, i, script, text.Bytes())
			if err != nil {
				return nil, err
			}
			*turn.rates = append(*turn.rates, rate)
		}
		slices.Reverse(turns)
		b.detail("pair %d: ours %.0f MB/s, direct %.0f MB/s; direct with the node's stamps, which ours must ask for, %.0f MB/s", i+1, ours[i], direct[i], stamped[i])
	}
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / direct[i]
	}
	slices.Sort(ratios)
	slices.Sort(ours)
	slices.Sort(direct)
	slices.Sort(stamped)
	ratio := ratios[len(ratios)/2]
	rows := []row{{
		name: fmt.Sprintf("(l) follow of %d lines, %d pairs", lines, len(ratios)), ours: fmt.Sprintf("%.0f MB/s", ours[len(ours)/2]),
		base: fmt.Sprintf("client-go %.0f MB/s, with stamps %.0f", direct[len(direct)/2], stamped[len(stamped)/2]), result: fmt.Sprintf("ratio %.2f (%.2f to %.2f)", ratio, ratios[0], ratios[len(ratios)-1]),
		aim: "ratio ≥ 0.80", met: ratio >= 0.8,
	}}
	memory, err := w.followers(ctx, b, b.n(400))
	return append(rows, memory...), err
}

// timed reads a log and returns the rate in MB/s from the first byte behind the mark to the last. The bytes must be those printed.
func timed(r io.Reader, want []byte) (float64, error) {
	const mark = "ready\n"
	head := make([]byte, len(mark)+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, err
	}
	start := time.Now()
	got := bytes.NewBuffer(make([]byte, 0, len(want)+bytes.MinRead))
	got.Write(head[len(mark):])
	if _, err := io.CopyN(got, r, int64(len(want)-1)); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if !bytes.Equal(got.Bytes(), want) {
		return 0, errors.New("the log is not what was printed")
	}
	return float64(len(want)) / 1e6 / took.Seconds(), nil
}

func (w *world) followOurs(ctx context.Context, i int, script []string, want []byte) (float64, error) {
	id, err := w.submit(ctx, submission(fmt.Sprint("follow-", i), 0, script...))
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+"/api/v1/versions/"+id+"/logs?follow=true", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+w.Key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return timed(resp.Body, want)
}

func (w *world) followDirect(ctx context.Context, i int, script []string, want []byte) (float64, error) {
	body, err := w.openDirect(ctx, fmt.Sprint("direct-", i), script, false)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	return timed(body, want)
}

// followStamped asks for the node's stamps, without which a follow that breaks cannot go on exactly where it was, and takes
// them off at once.
func (w *world) followStamped(ctx context.Context, i int, script []string, want []byte) (float64, error) {
	body, err := w.openDirect(ctx, fmt.Sprint("stamped-", i), script, true)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	r, pipe := io.Pipe()
	defer func() { _ = r.Close() }()
	go func() {
		out := bufio.NewWriterSize(pipe, 32<<10)
		lines := bufio.NewReaderSize(body, 128<<10)
		for {
			line, err := lines.ReadSlice('\n')
			_, text, _ := bytes.Cut(line, []byte{' '})
			if _, failed := out.Write(text); failed != nil || err != nil {
				_ = pipe.CloseWithError(cmp.Or(err, failed))
				return
			}
			if lines.Buffered() == 0 && out.Flush() != nil {
				return
			}
		}
	}()
	return timed(r, want)
}

// openDirect starts a Job of the script and follows its log by client-go.
func (w *world) openDirect(ctx context.Context, name string, script []string, stamps bool) (io.ReadCloser, error) {
	c, namespace := w.clients["main"], w.namespace
	limit := int32(0)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{BackoffLimit: &limit}}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox", Command: script}},
	}
	if _, err := c.BatchV1().Jobs(namespace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	pod, err := runningPod(ctx, c, namespace, "job-name="+name)
	if err != nil {
		return nil, err
	}
	return c.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: "main", Follow: true, Timestamps: stamps}).Stream(ctx)
}

func runningPod(ctx context.Context, c kubernetes.Interface, namespace, selector string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = stack.Until(ctx, "the pod of "+selector+" runs", func() (bool, error) {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		name = list.Items[0].Name
		return list.Items[0].Status.Phase == corev1.PodRunning, nil
	})
	return name, err
}

// followers: resident memory of the server for each of n event streams of one log that have read 1 MB and wait.
func (w *world) followers(ctx context.Context, b *bench, n int) ([]row, error) {
	id, err := w.submit(ctx, submission("followed", 0, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo printed; sleep 600"))
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(w.URL)
	if err != nil {
		return nil, err
	}
	open := func() (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address.Host)
		if err != nil {
			return nil, err
		}
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		_, err = fmt.Fprintf(c, "GET /api/v1/versions/%s/logs HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", id, address.Host, w.Key)
		if err != nil {
			return c, err
		}
		var tail []byte
		for block := make([]byte, 32<<10); !bytes.Contains(tail, []byte("printed")); {
			read, err := c.Read(block)
			if err != nil {
				return c, err
			}
			tail = append(tail[max(0, len(tail)-16):], block[:read]...)
		}
		return c, nil
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	more := func(n int) error {
		for range n {
			c, err := open()
			if c != nil {
				conns = append(conns, c)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	// The first ones pay for what all share.
	if err := more(10); err != nil {
		return nil, err
	}
	before, err := w.rss()
	if err != nil {
		return nil, err
	}
	if err := more(n); err != nil {
		return nil, err
	}
	after, err := w.rss()
	if err != nil {
		return nil, err
	}
	memory, err := w.goMemory(ctx)
	if err != nil {
		return nil, err
	}
	b.detail("the Go runtime of the server: %s", memory)
	each := (after - before) / float64(n)
	return []row{{
		name: fmt.Sprintf("(l) memory per follower, %d of one log", n), ours: fmt.Sprintf("server %.0f → %.0f MB", before/1000, after/1000),
		result: fmt.Sprintf("resident %.0f KB", each), aim: "≤ 64 KB", met: each <= 64,
	}}, nil
}

// rss is the server's resident memory in KB.
func (w *world) rss() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.Fields(rest)[0], 64)
		}
	}
	return 0, errors.New("no resident memory in the process's status")
}

// goMemory says what of the server's memory holds values, what stacks, and what waits to be used again.
func (w *world) goMemory(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var out []string
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		for name, label := range map[string]string{
			"go_memstats_heap_alloc_bytes": "heap in use or not yet collected", "go_memstats_stack_inuse_bytes": "stacks",
			"go_memstats_heap_idle_bytes": "idle", "go_memstats_heap_released_bytes": "of it given back",
		} {
			if value, ok := strings.CutPrefix(s.Text(), name+" "); ok {
				bytes, _ := strconv.ParseFloat(value, 64)
				out = append(out, fmt.Sprintf("%s %.1f MB", label, bytes/1e6))
			}
		}
	}
	return strings.Join(out, ", "), nil
}
