package component

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

func newEtcdCommand() *cobra.Command {
	var (
		dataDir, client, peer string
		tls                   transport.TLSInfo
	)
	cmd := &cobra.Command{
		Use:          controlplane.Etcd,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return runEtcd(ctx, dataDir, client, peer, tls)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "folder of the database")
	cmd.Flags().StringVar(&client, "client-url", "", "URL for clients, on loopback")
	cmd.Flags().StringVar(&peer, "peer-url", "", "URL for peers, on loopback")
	cmd.Flags().StringVar(&tls.CertFile, "cert-file", "", "certificate of the client endpoint")
	cmd.Flags().StringVar(&tls.KeyFile, "key-file", "", "key of that certificate")
	cmd.Flags().StringVar(&tls.TrustedCAFile, "ca-file", "", "CA that clients' certificates must come from")
	return cmd
}

func runEtcd(ctx context.Context, dataDir, client, peer string, tls transport.TLSInfo) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("etcd: client URL %q: %w", client, err)
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return fmt.Errorf("etcd: peer URL %q: %w", peer, err)
	}
	cfg := embed.NewConfig()
	cfg.Dir = dataDir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// Loopback is shared by all users of a machine, and who writes to this
	// database owns the cluster.
	tls.ClientCertAuth = true
	cfg.ClientTLSInfo = tls
	// The data is thrown away with the cluster: a power cut may cost it.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	// A burst of a thousand Jobs on a busy two-core machine delays heartbeats;
	// a single member gains nothing from electing itself again.
	cfg.TickMs, cfg.ElectionMs = 500, 5000
	// Old revisions are never read here, except by watches that lag a little.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "10m"
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd: start in %s: %w", dataDir, err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-ctx.Done():
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("etcd: not ready after a minute; see its log beside %s", dataDir)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("etcd: %w", err)
	}
}
