package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/metrics"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

func (a *app) reachClusters(context.Context) error {
	for _, s := range a.cfg.AllowCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("kube.allow_cidrs: %w", err)
		}
		a.allow = append(a.allow, p)
	}
	a.clients = kube.NewRegistry(kube.Options{
		Source: a.db, Connector: readable{a.host}, Logger: a.log.Named("kube"), DefaultNamespace: a.cfg.DefaultNamespace,
		QPS: float32(a.cfg.KubeQPS), Burst: int(a.cfg.KubeBurst), AllowCIDRs: a.allow,
		Policy:               kubeconfig.Options{AllowInsecure: a.cfg.AllowInsecure, AllowedProxies: a.cfg.AllowProxies},
		ProxyFromEnvironment: a.cfg.ProxyFromEnvironment,
		StoreConfig:          a.storeConfig, Observer: calls{a.metrics, a.log.Named("kube")}, UserAgent: "nagelfluh/" + a.o.Version,
	})
	a.closers.add(func() error { a.clients.Close(); return nil })
	return nil
}

// storeConfig keeps a provider config that the provider renewed, unless somebody has edited the one that it comes from.
func (a *app) storeConfig(ctx context.Context, clusterID string, revision int64, config []byte) (int64, error) {
	c, err := a.db.UpdateCluster(ctx, clusterID, nil, func(c *cluster.Cluster) error {
		if c.ConfigRevision != revision {
			return cluster.ErrStale
		}
		c.ProviderConfig = json.RawMessage(config)
		return nil
	})
	return c.ConfigRevision, err
}

func (a *app) clientset(ctx context.Context, clusterID string) (kubernetes.Interface, error) {
	c, err := a.clients.Get(ctx, clusterID)
	if err != nil {
		return nil, err
	}
	return c.Clientset, nil
}

// calls counts requests to clusters, and logs those that serve a request of the API.
type calls struct {
	m   *metrics.Metrics
	log hclog.Logger
}

func (c calls) Observe(call kube.Call) {
	code := "error"
	if call.Code != 0 {
		code = strconv.Itoa(call.Code)
	}
	c.m.ClusterCall(call.ClusterID, call.Verb, code, call.Took)
	if call.RequestID != "" {
		c.log.Debug("called for a request", "request_id", call.RequestID, "cluster", call.ClusterID, "verb", call.Verb,
			"resource", call.Resource, "code", code, "took", call.Took)
	}
}

// providers lets the cluster service ask the plugin host, whose errors become refusals.
type providers struct{ host *plugin.Host }

func (p providers) ValidateConfig(ctx context.Context, clusterType string, config json.RawMessage) (json.RawMessage, []string, error) {
	stored, warnings, err := p.host.ValidateConfig(ctx, clusterType, config)
	if err != nil {
		return nil, nil, configRefusal(clusterType, err)
	}
	texts := make([]string, 0, len(warnings))
	for _, w := range warnings {
		texts = append(texts, strings.TrimPrefix(configField(w.Path)+": "+w.Message, "provider_config: "))
	}
	return stored, texts, nil
}

func configRefusal(clusterType string, err error) error {
	var bad *plugin.InvalidConfig
	var failed *plugin.Error
	switch {
	case errors.As(err, &bad):
		fields := make([]problem.Field, len(bad.Fields))
		for i, f := range bad.Fields {
			fields[i] = problem.Field{Field: configField(f.Path), Message: f.Message}
		}
		return problem.Fields(problem.Invalid, fields)
	case errors.Is(err, plugin.ErrNotServed):
		return problem.InField(problem.UnknownClusterType, "type", "no provider plugin serves %q now; `nagelfluh clusters types` lists those that are served", clusterType)
	case errors.As(err, &failed):
		return problem.New(problem.ProviderUnavailable, "%s", failed).Because(err)
	}
	return err
}

// configField turns a JSON pointer within the provider config into a field of the request.
func configField(pointer string) string {
	field := "provider_config"
	for _, part := range strings.Split(pointer, "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch {
		case part == "":
		case strings.Trim(part, "0123456789") == "", strings.ContainsAny(part, "./[] "):
			field += "[" + part + "]"
		default:
			field += "." + part
		}
	}
	return field
}

// writeSecret writes a file that only its owner can read, whole or not at all.
func writeSecret(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
