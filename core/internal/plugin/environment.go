package plugin

import (
	"slices"
	"strings"
)

// passedOn are the variables of the host's environment that every plugin gets. Nothing else leaks.
var passedOn = []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// environment picks from the host's environment what plugins get: passedOn and the names that the operator adds.
func environment(host []string, added []string) []string {
	var env []string
	for _, entry := range host {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(passedOn, name) || slices.Contains(added, name) {
			env = append(env, entry)
		}
	}
	return env
}
