package storage

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// Keys of the Secret's data.
const (
	keyAccessKey    = "access-key-id"
	keySecretKey    = "secret-access-key"
	keySessionToken = "session-token"
)

// Access is what a Job needs to reach the storage of its project.
type Access struct {
	ProjectID string
	BackendID string
	Env       []Variable
	// Secret is the name of the Secret that holds the credentials, and Data what it holds.
	Secret string
	Data   map[string]string
}

// Variable is one variable of a Job's environment: a value, or the key of the Secret that has it.
type Variable struct {
	Name  string
	Value string
	Key   string // of the Secret's data; empty: Value counts
}

// standard begins the names that S3 clients look for by themselves.
const standard = "AWS_"

// AccessOf returns what a Job of the project needs. The name of the Secret follows from installation, project, backend and
// credentials, so that changed credentials make another Secret and a Job keeps the one that it was made with. Sets has
// the names of the variables that the user sets: theirs go first, and when one of them begins with AWS_ none of ours
// does, for half of our settings with half of theirs would send their credentials to our endpoint, or ours to theirs.
func AccessOf(installation, projectID string, b Backend, sets []string) Access {
	a := Access{ProjectID: projectID, BackendID: b.ID, Data: map[string]string{
		keyAccessKey: b.Credentials.AccessKeyID, keySecretKey: b.Credentials.SecretAccessKey,
	}}
	if b.Credentials.SessionToken != "" {
		a.Data[keySessionToken] = b.Credentials.SessionToken
	}
	a.Secret = "nagelfluh-storage-" + digest(projectID, b.ID) + "-" +
		digest(installation, projectID, b.ID, b.Credentials.AccessKeyID, b.Credentials.SecretAccessKey, b.Credentials.SessionToken)

	taken := map[string]bool{}
	theirs := false
	for _, name := range sets {
		taken[name] = true
		theirs = theirs || strings.HasPrefix(name, standard)
	}
	add := func(v Variable) {
		if !taken[v.Name] && (!theirs || !strings.HasPrefix(v.Name, standard)) {
			a.Env = append(a.Env, v)
		}
	}
	pathStyle := "false"
	if b.PathStyle {
		pathStyle = "true"
	}
	for _, v := range []Variable{
		{Name: "NAGELFLUH_STORAGE_TYPE", Value: b.Type},
		{Name: "NAGELFLUH_STORAGE_ENDPOINT", Value: b.Endpoint},
		{Name: "NAGELFLUH_STORAGE_REGION", Value: b.Region},
		{Name: "NAGELFLUH_STORAGE_BUCKET", Value: b.Bucket},
		{Name: "NAGELFLUH_STORAGE_PREFIX", Value: b.PrefixOf(projectID)},
		{Name: "NAGELFLUH_STORAGE_PATH_STYLE", Value: pathStyle},
		{Name: standard + "ENDPOINT_URL_S3", Value: b.Endpoint},
		{Name: standard + "REGION", Value: b.Region},
		{Name: standard + "DEFAULT_REGION", Value: b.Region},
	} {
		add(v)
	}
	for _, prefix := range []string{"NAGELFLUH_STORAGE_", standard} {
		add(Variable{Name: prefix + "ACCESS_KEY_ID", Key: keyAccessKey})
		add(Variable{Name: prefix + "SECRET_ACCESS_KEY", Key: keySecretKey})
		if b.Credentials.SessionToken != "" {
			add(Variable{Name: prefix + "SESSION_TOKEN", Key: keySessionToken})
		}
	}
	return a
}

// digest is the same for the same texts alone, and fits into a name.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:16]
}
