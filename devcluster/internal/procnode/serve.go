package procnode

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// serve answers the API server's requests for logs, as a kubelet does. Only the
// API server has a certificate that opens this door: all users of the machine
// can reach it.
func serve(m *manager, pki string) (port int, closeServer func(), err error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "kubelet.crt"), filepath.Join(pki, "kubelet.key"))
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: load its certificate: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: load the CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return 0, nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", m.serveLog)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // clients that hang up are no news
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{certificate},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    pool,
		},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return listener.Addr().(*net.TCPAddr).Port, func() { server.Close() }, nil
}

// serveLog answers with the status codes and sentences of a kubelet: clients
// tell a container that waits from one that is not there by them.
func (m *manager) serveLog(w http.ResponseWriter, r *http.Request) {
	options, previous, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	options.ctx = r.Context()
	namespace, podName, name := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	p := m.find(namespace, podName)
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q not found in namespace %q on this node", podName, namespace), http.StatusNotFound)
		return
	}
	c := p.container(name)
	if c == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, podName), http.StatusNotFound)
		return
	}
	file, err := c.logOf(previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reader, err := file.open(options)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer reader.Close()
	w.Header().Set("Content-Type", "text/plain")
	buffer := make([]byte, 32<<10)
	for {
		n, err := reader.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			if options.follow {
				_ = http.NewResponseController(w).Flush()
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			// Nothing may be added to what the container wrote: cut instead.
			logf("log of %s/%s/%s: %v", namespace, podName, name, err)
			panic(http.ErrAbortHandler)
		}
	}
}

// logOf returns the log of the present run of the container or the one before.
func (c *container) logOf(previous bool) (*logFile, error) {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	file := c.log
	if previous {
		file = c.previous
		if waiting := c.state.Waiting; waiting != nil && c.log != nil {
			file = c.log // the run that is over is the previous one already
		}
		if file == nil {
			return nil, fmt.Errorf("previous terminated container %q in pod %q not found", c.spec.Name, c.pod.name)
		}
	}
	if file == nil {
		reason := "ContainerCreating"
		if c.state.Waiting != nil {
			reason = c.state.Waiting.Reason
		}
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", c.spec.Name, c.pod.name, reason)
	}
	return file, nil
}

func parseLogOptions(query url.Values, now time.Time) (options logOptions, previous bool, err error) {
	number := func(name string) *int64 {
		text := query.Get(name)
		if text == "" {
			return nil
		}
		value, parseErr := strconv.ParseInt(text, 10, 64)
		if parseErr != nil || value < 0 {
			err = errors.Join(err, fmt.Errorf("%s %q: must be a number of 0 or more", name, text))
		}
		return &value
	}
	truth := func(name string) bool {
		text := query.Get(name)
		if text == "" {
			return false
		}
		value, parseErr := strconv.ParseBool(text)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("%s %q: must be true or false", name, text))
		}
		return value
	}
	options = logOptions{
		follow:     truth("follow"),
		timestamps: truth("timestamps"),
		tail:       number("tailLines"),
		limit:      number("limitBytes"),
	}
	if seconds := number("sinceSeconds"); seconds != nil {
		options.since = now.Add(-time.Duration(*seconds) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		since, parseErr := time.Parse(time.RFC3339, text)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("sinceTime %q: must be as RFC 3339 has it", text))
		}
		options.since = since
	}
	if stream := query.Get("stream"); stream != "" && stream != string(corev1.LogStreamAll) {
		err = errors.Join(err, fmt.Errorf("stream %q: process nodes keep stdout and stderr as one", stream))
	}
	return options, truth("previous"), err
}
