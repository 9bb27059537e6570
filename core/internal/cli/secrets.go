package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

func (c *command) secretsCommand() *cobra.Command {
	rotate := &cobra.Command{
		Use: "rotate", Short: "Make a new key and encrypt every stored secret anew with it", Args: cobra.NoArgs,
		Long: "Make a new key and encrypt every provider config and the credentials of every storage backend anew with it. It works on the database and the keyset's file, beside a running\n" +
			"server or without one; run it on the machine of the server, with the server's settings and as its user. Interrupted, it loses\n" +
			"nothing: run it again. Old keys stay in the file for reading backups, unless --drop-old removes them.",
	}
	dropOld := rotate.Flags().Bool("drop-old", false, "remove keys that nothing in the database needs any more; backups from before then need a copy of the old file")
	rotateSettings := addSettings(rotate)
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withSecrets(cmd.Context(), rotateSettings, func(box *secret.Box, db *store.DB) error {
			did, err := box.Rotate(cmd.Context(), db, *dropOld)
			if err != nil {
				return err
			}
			if err := c.print(did, func(w io.Writer) {
				row(w, "new key", did.Primary.ID, "fingerprint "+did.Primary.Fingerprint)
				row(w, "encrypted anew", did.Encrypted, "stored secrets")
				for _, key := range did.Dropped {
					row(w, "dropped", key.ID, "fingerprint "+key.Fingerprint)
				}
			}); err != nil {
				return err
			}
			return unreadable(did.Unreadable)
		})
	}
	status := &cobra.Command{Use: "status", Short: "Show the keys, and how many stored secrets need each", Args: cobra.NoArgs}
	statusSettings := addSettings(status)
	status.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withSecrets(cmd.Context(), statusSettings, func(box *secret.Box, db *store.DB) error {
			s, err := box.Status(cmd.Context(), db)
			if err != nil {
				return err
			}
			if err := c.print(s, func(w io.Writer) {
				row(w, "KEY", "FINGERPRINT", "PRIMARY", "CONFIGS")
				for _, key := range s.Keys {
					row(w, key.ID, key.Fingerprint, yes(key.Primary), key.Configs)
				}
			}); err != nil {
				return err
			}
			if c.output == "table" {
				c.note("keyset: %s", s.File)
			}
			switch {
			case s.Problem != "":
				return errors.New(s.Problem)
			case !s.Encrypted || len(s.Plain) > 0:
				c.note("not everything is encrypted yet: the next start of the server does that")
			}
			return unreadable(s.Unreadable)
		})
	}
	return group("secrets", "The encryption of the secrets in the database", rotate, status)
}

func unreadable(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("these have a secret that cannot be decrypted, for their rows were changed; give each a new one: %s", strings.Join(ids, ", "))
}

func (c *command) withSecrets(ctx context.Context, s *settings, f func(*secret.Box, *store.DB) error) error {
	cfg, err := s.load(c.Env)
	if err != nil {
		return err
	}
	return c.withStore(ctx, s, func(db *store.DB) error {
		all, err := db.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.AppliedAt.IsZero() {
				return errors.New("the database is not up to date: start the server, or run `nagelfluh migrate up`")
			}
		}
		return f(secret.NewBox(cfg.KeysetFile), db)
	})
}
