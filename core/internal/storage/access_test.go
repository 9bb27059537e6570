package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

func names(a storage.Access) (out []string) {
	for _, v := range a.Env {
		out = append(out, v.Name)
	}
	return out
}

// The name of a Secret follows from what it is for and what it holds, and tells nothing of that.
func TestSecretNames(t *testing.T) {
	b := backend("https://s3.example.org")
	b.ID = "b"
	of := func(edit func(*storage.Backend), installation, project string) string {
		b := b
		edit(&b)
		return storage.AccessOf(installation, project, b, nil).Secret
	}
	same := func(*storage.Backend) {}
	first := of(same, "i", "p")
	if first != of(same, "i", "p") || len(first) > 63 || strings.ToLower(first) != first {
		t.Error(first)
	}
	if moved := of(func(b *storage.Backend) { b.Endpoint = "https://other"; b.Name = "n" }, "i", "p"); moved != first {
		t.Error("what is not in the Secret changes its name")
	}
	seen := map[string]string{first: "as it is"}
	for what, name := range map[string]string{
		"installation": of(same, "j", "p"), "project": of(same, "i", "q"), "backend": of(func(b *storage.Backend) { b.ID = "c" }, "i", "p"),
		"access key": of(func(b *storage.Backend) { b.Credentials.AccessKeyID += "x" }, "i", "p"),
		"secret key": of(func(b *storage.Backend) { b.Credentials.SecretAccessKey += "x" }, "i", "p"),
		"token":      of(func(b *storage.Backend) { b.Credentials.SessionToken = "x" }, "i", "p"),
		"boundary": of(func(b *storage.Backend) {
			b.Credentials = storage.Credentials{AccessKeyID: accessKey + secretKey[:1], SecretAccessKey: secretKey[1:]}
		}, "i", "p"),
	} {
		if was := seen[name]; was != "" {
			t.Errorf("another %s has the same name as %s", what, was)
		}
		seen[name] = what
	}
}

// The user's own variables go first; one that S3 clients look for takes all of ours of that kind out.
func TestUsersVariablesGoFirst(t *testing.T) {
	b := backend("https://s3.example.org")
	all := names(storage.AccessOf("i", "p", b, nil))
	for _, want := range []string{"NAGELFLUH_STORAGE_BUCKET", "NAGELFLUH_STORAGE_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is missing in %v", want, all)
		}
	}
	own := names(storage.AccessOf("i", "p", b, []string{"AWS_PROFILE", "NAGELFLUH_STORAGE_BUCKET"}))
	for _, name := range own {
		if strings.HasPrefix(name, "AWS_") || name == "NAGELFLUH_STORAGE_BUCKET" {
			t.Errorf("%s is set beside the user's own", name)
		}
	}
	if !slices.Contains(own, "NAGELFLUH_STORAGE_ENDPOINT") {
		t.Error(own)
	}
	for _, v := range storage.AccessOf("i", "p", b, nil).Env {
		if strings.Contains(v.Value, accessKey) || strings.Contains(v.Value, secretKey) {
			t.Errorf("%s holds a credential", v.Name)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{"": "p/", "a": "a/p/", "a/b": "a/b/p/"} {
		if got := (storage.Backend{Prefix: prefix}).PrefixOf("p"); got != want {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

// Whatever prints a backend shows no credential.
func TestCredentialsShowInNoText(t *testing.T) {
	b := backend("https://s3.example.org")
	text := fmt.Sprintf("%v %+v %#v %s %v %+v", b, b, b, b.Credentials, &b, []storage.Backend{b})
	if strings.Contains(text, accessKey) || strings.Contains(text, secretKey) {
		t.Error(text)
	}
}
