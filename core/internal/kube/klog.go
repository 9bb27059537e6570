package kube

import (
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
	"k8s.io/klog/v2"
)

// RouteKlog sends what the Kubernetes libraries log to l at debug level: they report errors that their callers handle and
// report themselves. It sets a global; call it once, before anything else of this package.
func RouteKlog(l hclog.Logger) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(debugWriter{l}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{} // the logger behind writes its own
			}
			return a
		},
	})))
}

type debugWriter struct{ log hclog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug(strings.TrimSpace(string(p)))
	return len(p), nil
}
