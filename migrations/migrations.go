// Package migrations holds the database schema as plain SQL and brings a database up to it.
//
// There is one folder a dialect. A file is named YYYYMMDDHHMMSS_name.up.sql and holds statements that each end with a
// semicolon at the end of a line. A file that was released never changes; a change of the schema is a new file, with the
// same name in both folders. The package imports nothing of the domain.
package migrations

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// Dialect names the SQL that a database speaks; it is also the name of the folder.
type Dialect string

// The dialects.
const (
	SQLite     Dialect = "sqlite"
	PostgreSQL Dialect = "postgres"
)

// Migration is one file.
type Migration struct {
	Name       string // of the file, without ".up.sql"
	Checksum   string // SHA-256 of the file, hex
	statements []string
}

var fileName = regexp.MustCompile(`^\d{14}_[a-z0-9_]+\.up\.sql$`)

// List returns the migrations of a dialect in the order in which they are applied.
func List(d Dialect) ([]Migration, error) { return list(files, d) }

func list(fsys fs.FS, d Dialect) ([]Migration, error) {
	if d != SQLite && d != PostgreSQL {
		return nil, fmt.Errorf("migrations: no dialect %q", d)
	}
	entries, err := fs.ReadDir(fsys, string(d))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	var all []Migration // ReadDir sorts by name
	for _, e := range entries {
		if !fileName.MatchString(e.Name()) {
			return nil, fmt.Errorf("migrations: %s/%s is not named YYYYMMDDHHMMSS_name.up.sql", d, e.Name())
		}
		text, err := fs.ReadFile(fsys, path.Join(string(d), e.Name()))
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		sum := sha256.Sum256(text)
		all = append(all, Migration{
			Name:       strings.TrimSuffix(e.Name(), ".up.sql"),
			Checksum:   hex.EncodeToString(sum[:]),
			statements: split(text),
		})
	}
	return all, nil
}

// split cuts a file into statements. Not every driver takes several at once, and an error can name the one that failed.
func split(text []byte) []string {
	var (
		all     []string
		current strings.Builder
	)
	for line := range bytes.Lines(text) {
		trimmed := strings.TrimSpace(string(line))
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		current.Write(line)
		if strings.HasSuffix(trimmed, ";") {
			all = append(all, strings.TrimSpace(current.String()))
			current.Reset()
		}
	}
	if rest := strings.TrimSpace(current.String()); rest != "" {
		all = append(all, rest)
	}
	return all
}
