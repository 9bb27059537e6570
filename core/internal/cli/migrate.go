package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func (c *command) migrateCommand() *cobra.Command {
	up := &cobra.Command{Use: "up", Short: "Bring the database up to date", Args: cobra.NoArgs,
		Long: "Bring the database up to date. The server does so itself when it starts."}
	upSettings := addSettings(up)
	up.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withStore(cmd.Context(), upSettings, func(db *store.DB) error {
			applied, err := db.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(applied, func(w io.Writer) {
				if len(applied) == 0 {
					row(w, "the database is up to date")
				}
				for _, name := range applied {
					row(w, "applied", name)
				}
			})
		})
	}
	status := &cobra.Command{Use: "status", Short: "Show which migrations the database has", Args: cobra.NoArgs}
	statusSettings := addSettings(status)
	status.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withStore(cmd.Context(), statusSettings, func(db *store.DB) error {
			all, err := db.MigrationStatus(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(all, func(w io.Writer) {
				row(w, "MIGRATION", "APPLIED", "NOTE")
				for _, m := range all {
					at := "no"
					if !m.AppliedAt.IsZero() {
						at = m.AppliedAt.UTC().Format("2006-01-02 15:04:05")
					}
					note := ""
					switch {
					case m.Unknown:
						note = "of a newer version of nagelfluh"
					case m.Drifted:
						note = "differs from what was applied"
					}
					row(w, m.Name, at, note)
				}
			})
		})
	}
	return group("migrate", "The database's schema", up, status)
}

func (c *command) withStore(ctx context.Context, s *settings, f func(*store.DB) error) (err error) {
	cfg, err := s.load(c.Env)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Options{URL: cfg.Database})
	if err != nil {
		return err
	}
	defer func() {
		if e := db.Close(); err == nil {
			err = e
		}
	}()
	return f(db)
}
