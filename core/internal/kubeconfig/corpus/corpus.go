// Package corpus holds kubeconfigs that are hostile, broken or just odd, each with what the policy has to say to it. It is
// for tests alone; they replay it on every way into the server.
package corpus

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
)

// Marker stands for the secrets in the texts: no message may hold it.
const Marker = "SECRET-MARK-1"

// Now is the time at which the dates in the texts are judged.
var Now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// Case is one text. Without problems it is accepted.
type Case struct {
	Name     string
	Text     []byte
	Options  kubeconfig.Options
	Problems []Problem
	Warning  string // part of the only warning; empty: there is none
}

// Problem is one that the policy must find.
type Problem struct {
	Class       kubeconfig.Class `json:"class"`
	Field       string           `json:"field"`
	FieldPrefix string           `json:"fieldPrefix"` // instead of Field, where what comes behind is of no matter
	Remedy      string           `json:"remedy"`      // part of it
	Line        int              `json:"line"`        // 0: of no matter
	Column      int              `json:"column"`      // 0: of no matter
}

//go:embed testdata
var files embed.FS

// Places are what the texts point at, to be watched by a test.
type Places struct {
	Canary   string // a directory in which nothing may be opened
	Listener string // host:port that nobody may call
}

// Cases returns the corpus in the order of its index.
func Cases(at Places) ([]Case, error) {
	raw, err := files.ReadFile("testdata/index.yaml")
	if err != nil {
		return nil, err
	}
	var index []struct {
		File          string    `json:"file"`
		Problems      []Problem `json:"problems"`
		Warning       string    `json:"warning"`
		Context       string    `json:"context"`
		AllowInsecure bool      `json:"allow_insecure"`
		AllowProxies  []string  `json:"allow_proxies"`
		Pad           int       `json:"pad"`
	}
	if err := yaml.UnmarshalStrict(raw, &index); err != nil {
		return nil, fmt.Errorf("index.yaml: %w", err)
	}
	places := strings.NewReplacer("@CANARY@", at.Canary, "@LISTENER@", at.Listener)
	cases := make([]Case, len(index))
	for i, e := range index {
		text, err := files.ReadFile("testdata/" + e.File)
		if err != nil {
			return nil, err
		}
		text = append([]byte(places.Replace(string(text))), bytes.Repeat([]byte(" "), e.Pad)...)
		cases[i] = Case{
			Name: e.File, Text: text, Problems: e.Problems, Warning: e.Warning,
			Options: kubeconfig.Options{Context: e.Context, AllowInsecure: e.AllowInsecure, AllowedProxies: e.AllowProxies, Now: Now},
		}
	}
	return cases, nil
}

// Files returns the names of the texts that there are, the index left out.
func Files() ([]string, error) {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "index.yaml" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
