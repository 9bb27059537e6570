package storage

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// defaultRegion is what servers that know no regions take.
const defaultRegion = "us-east-1"

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	bucketForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$`)
	regionForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9!_.*'()/-]{0,512}$`)
)

// complete puts the fields into their one form and says what is wrong with them.
func (b *Backend) complete() error {
	b.Type, b.Region = cmp.Or(b.Type, S3), cmp.Or(b.Region, defaultRegion)
	b.Endpoint, b.Prefix = strings.TrimRight(b.Endpoint, "/"), strings.Trim(b.Prefix, "/")
	var faults []problem.Field
	fault := func(wrong bool, field, message string) {
		if wrong {
			faults = append(faults, problem.Field{Field: field, Message: message})
		}
	}
	fault(!nameForm.MatchString(b.Name), "name", "is no name: letters, digits, '-', '_' and '.', at most 63")
	fault(b.Type != S3, "type", `is unknown: there is "s3"`)
	fault(!endpointOK(b.Endpoint), "endpoint", "is no http or https URL of a server alone, such as https://s3.example.org")
	fault(!regionForm.MatchString(b.Region), "region", "is no region: letters, digits and '-'")
	fault(!bucketForm.MatchString(b.Bucket), "bucket", "is no bucket: letters, digits, '-', '_' and '.', 2 to 255")
	fault(!prefixForm.MatchString(b.Prefix) || odd(b.Prefix), "prefix", "is no prefix: letters, digits and !_.*'()-, parted by single slashes, none of them '.' or '..'")
	c := b.Credentials
	fault(!plain(c.AccessKeyID, 1), "credentials.access_key_id", "is missing, longer than 4096 characters, or has white space in it")
	fault(!plain(c.SecretAccessKey, 1), "credentials.secret_access_key", "is missing, longer than 4096 characters, or has white space in it")
	fault(!plain(c.SessionToken, 0), "credentials.session_token", "is longer than 4096 characters, or has white space in it")
	if len(faults) > 0 {
		return problem.Fields(problem.Invalid, faults)
	}
	return nil
}

func endpointOK(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.Opaque == "" &&
		u.Path == "" && u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" && len(s) <= 1024 && !strings.HasSuffix(s, "#")
}

// odd says whether a server may take a prefix for another one.
func odd(prefix string) bool {
	if prefix == "" {
		return false
	}
	for _, part := range strings.Split(prefix, "/") {
		if part == "" || part == "." || part == ".." {
			return true
		}
	}
	return false
}

func plain(s string, least int) bool {
	return len(s) >= least && len(s) <= 4096 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}
