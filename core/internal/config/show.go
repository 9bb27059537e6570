package config

import (
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"
)

const masked = "********"

// Shown is one setting as `config show` prints it.
type Shown struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"` // default, file PATH, environment NAME or flag --NAME
	Env    string `json:"env"`
	Flag   string `json:"flag,omitempty"` // empty: it has none
}

// Show returns every setting with secrets masked and where it came from.
func (c *Config) Show() []Shown {
	var out []Shown
	for _, s := range c.settings() {
		shown := s.value.show()
		if text, isText := shown.(string); isText && s.secret && text != "" {
			shown = mask(text)
		}
		flag := s.flagName()
		if flag != "" {
			flag = "--" + flag
		}
		out = append(out, Shown{Key: s.key, Value: shown, Source: c.Sources[s.key], Env: s.envName(), Flag: flag})
	}
	return out
}

// mask hides a secret, but of a URL only the password.
func mask(s string) string {
	if strings.HasPrefix(s, "sqlite:") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return masked
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	q := u.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "pass") {
			q.Set(key, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Flag is a flag of `nagelfluh server`.
type Flag struct {
	Key, Name, Doc, Kind string // Kind is empty for a switch
	Default              string
}

// Flags lists the flags in the order of the settings.
func Flags() []Flag {
	var out []Flag
	for _, s := range (&Config{}).settings() {
		if s.flagName() != "" {
			out = append(out, Flag{Key: s.key, Name: s.flagName(), Doc: s.doc, Kind: s.value.kind(), Default: strings.Join(s.def, ",")})
		}
	}
	return out
}

// Example writes the commented example file. Every setting is in it, each with its default.
func Example() string {
	var b strings.Builder
	b.WriteString("# Nagelfluh's settings with their defaults. A setting may stand here, in the environment, or be given as a flag of\n" +
		"# `nagelfluh server`; the later of these wins. Unknown keys are errors. `nagelfluh config show` prints the result.\n" +
		"# This file is generated: `nagelfluh config example`.\n")
	c := &Config{}
	all := c.settings()
	group := ""
	for _, s := range all {
		b.WriteByte('\n')
		indent, name := "", s.key
		if g, rest, nested := strings.Cut(s.key, "."); nested {
			if g != group {
				fmt.Fprintf(&b, "%s:\n", g)
			}
			group, indent, name = g, "  ", rest
		} else {
			group = ""
		}
		where := "Environment " + s.envName()
		if f := s.flagName(); f != "" {
			where += ", flag --" + f
		}
		for _, line := range wrap(s.doc, 112-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		fmt.Fprintf(&b, "%s# %s.\n", indent, where)
		_ = s.value.set(s.def)
		fmt.Fprintf(&b, "%s%s: %s\n", indent, name, inline(s.value.show()))
		if s.sample != "" {
			fmt.Fprintf(&b, "%s# for example: %s\n", indent, s.sample)
		}
	}
	return b.String()
}

func inline(v any) string {
	switch v := v.(type) {
	case []string:
		return "[]"
	case map[string]any:
		return "{}"
	case string:
		if v == "" {
			return `""`
		}
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		panic("config: " + err.Error())
	}
	return strings.TrimSpace(string(raw))
}

func wrap(s string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
