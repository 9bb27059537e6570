package job

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Labels of every Job and pod that Nagelfluh makes. Their values are valid label values.
const (
	LabelInstallation = "nagelfluh.io/installation" // the installation whose work this is
	LabelProject      = "nagelfluh.io/project"
	LabelVersion      = "nagelfluh.io/version"
	LabelAttempt      = "nagelfluh.io/attempt"
)

// LabelStorage is on the Secrets of storage, beside those of installation and project: the backend. LabelStorageSecret is
// on the Jobs that take variables from such a Secret: its name.
const (
	LabelStorage       = "nagelfluh.io/storage"
	LabelStorageSecret = "nagelfluh.io/storage-secret"
)

// Annotations of every Job and pod; their values are as the user wrote them.
const (
	AnnotationProcess = "nagelfluh.io/process-name"
	AnnotationLabels  = "nagelfluh.io/process-labels" // JSON object
)

// LabelQueue names the Kueue LocalQueue that admits a Job.
const LabelQueue = "kueue.x-k8s.io/queue-name"

// MainContainer is the name of the container that runs the user's command.
const MainContainer = "main"

// MaxNameLength bounds Job names: a pod gets a dash and five characters more, which must fit into the 63 of a host name
// and a label value.
const MaxNameLength = 52

const suffixLength = 10

// Name returns the name of the attempt's Job: what of the process's name is allowed in a DNS label, then a suffix that
// the attempt's id alone determines. The same input gives the same name for ever: it finds the Job again after a crash.
func Name(processName, attemptID string) string {
	slug := slugOf(processName, MaxNameLength-suffixLength-1)
	return slug + "-" + digest(attemptID)
}

// LabelValue returns s when it is a valid label value, else what is allowed of it with a suffix that keeps different
// texts different. Empty stays empty.
func LabelValue(s string) string {
	if s == "" || validLabelValue(s) {
		return s
	}
	return slugOf(s, 63-suffixLength-1) + "-" + digest(s)
}

// slugOf lower-cases s, keeps letters and digits of ASCII, turns each run of anything else into one dash and cuts to
// limit without a trailing dash. Letters with a mark lose the mark.
func slugOf(s string, limit int) string {
	var b strings.Builder
	dash := false
	for _, r := range norm.NFKD.String(s) {
		r = unicode.ToLower(r)
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // a mark belongs to the letter before it
		default:
			dash = true
		}
		if b.Len() >= limit {
			break
		}
	}
	slug := b.String()
	if len(slug) > limit {
		slug = slug[:limit]
	}
	slug = strings.Trim(slug, "-")
	if slug == "" {
		return "process"
	}
	return slug
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:suffixLength]
}

func validLabelValue(s string) bool {
	if len(s) > 63 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || i == len(s)-1 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return true
}
