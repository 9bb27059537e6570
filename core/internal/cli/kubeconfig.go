package cli

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
)

func (c *command) kubeconfigCommand() *cobra.Command {
	var o kubeconfig.Options
	check := &cobra.Command{
		Use: "check FILE|-", Short: "Say what the server would take of a kubeconfig, and what it would refuse", Args: exactly(1, "a file, or - for standard input"),
		Long: "Apply the server's kubeconfig policy without a server: nothing is dialled, and no file or command that the text names is\n" +
			"touched. Shown is what would be stored, with fingerprints in place of secrets. A refused text ends with exit code 1.",
		Example: `  nagelfluh kubeconfig check ~/.kube/config --context prod
  kubectl config view --raw --minify --flatten | nagelfluh kubeconfig check -`,
		RunE: func(_ *cobra.Command, args []string) error {
			raw, err := c.readKubeconfig(args[0])
			if err != nil {
				return err
			}
			o.Now = time.Now()
			return c.judge(raw, o)
		},
	}
	f := check.Flags()
	f.StringVar(&o.Context, "context", "", "context to use (default: the current one, or the only one)")
	f.BoolVar(&o.AllowInsecure, "allow-insecure", false, "judge as a server with kube.allow_insecure")
	f.StringArrayVar(&o.AllowedProxies, "allow-proxy", nil, "judge as a server that lists this proxy in kube.allow_proxies (repeatable)")
	return group("kubeconfig", "Kubeconfigs, without a server", check)
}

// readKubeconfig reads no more than the policy looks at and a byte, which makes it refuse the text.
func (c *command) readKubeconfig(file string) ([]byte, error) {
	in := c.In
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	return io.ReadAll(io.LimitReader(in, kubeconfig.MaxSize+1))
}

// verdict is what the policy says, for programs.
type verdict struct {
	Accepted bool              `json:"accepted"`
	Stored   *storedKubeconfig `json:"stored,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	Problems []kubeProblem     `json:"problems,omitempty"`
	// Contexts are those to choose from, where the text leaves the choice open.
	Contexts []string `json:"contexts,omitempty"`
}

type kubeProblem struct {
	Class   kubeconfig.Class `json:"class"`
	Field   string           `json:"field,omitempty"`
	Line    int              `json:"line,omitempty"`
	Column  int              `json:"column,omitempty"`
	Problem string           `json:"problem"`
	Remedy  string           `json:"remedy"`
}

// storedKubeconfig is a result without its secrets.
type storedKubeconfig struct {
	Context           string         `json:"context"`
	Server            string         `json:"server"`
	ServerName        string         `json:"tls_server_name,omitempty"`
	CA                []maskedSecret `json:"certificate_authority,omitempty"`
	Insecure          bool           `json:"insecure,omitempty"`
	Proxy             string         `json:"proxy,omitempty"`
	Namespace         string         `json:"namespace,omitempty"`
	Token             *maskedSecret  `json:"token,omitempty"`
	ClientCertificate *maskedSecret  `json:"client_certificate,omitempty"`
}

// maskedSecret tells a certificate or token from another, and no more.
type maskedSecret struct {
	Fingerprint string     `json:"fingerprint"`
	Subject     string     `json:"subject,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

func (c *command) judge(raw []byte, o kubeconfig.Options) error {
	r, err := kubeconfig.Rebuild(raw, o)
	var refusal *kubeconfig.Refusal
	switch {
	case errors.As(err, &refusal):
		v := verdict{Contexts: refusal.Contexts}
		for _, p := range refusal.All {
			v.Problems = append(v.Problems, kubeProblem{p.Class, p.Field, p.Line, p.Column, p.Problem, p.Remedy})
		}
		if err := c.print(v, func(w io.Writer) { writeProblems(w, v.Problems) }); err != nil {
			return err
		}
		return &exit{code: ExitError, err: fmt.Errorf("the kubeconfig is refused: %s", plural(len(v.Problems), "problem"))}
	case err != nil:
		return err
	}
	v := verdict{Accepted: true, Stored: mask(r), Warnings: r.Warnings}
	return c.print(v, func(w io.Writer) { writeStored(w, v) })
}

func writeProblems(w io.Writer, problems []kubeProblem) {
	row(w, "AT", "FIELD", "PROBLEM", "REMEDY")
	for _, p := range problems {
		at := ""
		if p.Line > 0 {
			at = fmt.Sprint(p.Line)
			if p.Column > 0 {
				at = fmt.Sprintf("%d:%d", p.Line, p.Column)
			}
		}
		row(w, at, p.Field, p.Problem, p.Remedy)
	}
}

func writeStored(w io.Writer, v verdict) {
	s := v.Stored
	row(w, "context", s.Context)
	row(w, "server", s.Server)
	if s.ServerName != "" {
		row(w, "tls-server-name", s.ServerName)
	}
	switch {
	case s.Insecure:
		row(w, "certificate-authority", "not verified")
	case len(s.CA) == 0:
		row(w, "certificate-authority", "those of the server's system")
	}
	for _, ca := range s.CA {
		row(w, "certificate-authority", ca)
	}
	if s.Proxy != "" {
		row(w, "proxy-url", s.Proxy)
	}
	row(w, "namespace", s.Namespace)
	if s.Token != nil {
		row(w, "token", s.Token)
	}
	if s.ClientCertificate != nil {
		row(w, "client-certificate", s.ClientCertificate)
		row(w, "client-key", "(not shown)")
	}
	for _, text := range v.Warnings {
		row(w, "warning", text)
	}
}

func (m maskedSecret) String() string {
	parts := []string{m.Fingerprint}
	if m.Subject != "" {
		parts = append(parts, m.Subject)
	}
	if m.ExpiresAt != nil {
		parts = append(parts, "expires "+m.ExpiresAt.Format("2006-01-02 15:04 MST"))
	}
	return strings.Join(parts, ", ")
}

// mask leaves fingerprints, subjects and dates of a result.
func mask(r kubeconfig.Result) *storedKubeconfig {
	s := &storedKubeconfig{
		Context: r.Context, Server: r.Server, ServerName: r.ServerName, Insecure: r.Insecure, Namespace: r.Namespace, CA: certificates(r.CA),
	}
	if u, err := url.Parse(r.ProxyURL); err == nil {
		s.Proxy = u.Redacted()
	}
	if r.Token != "" {
		s.Token = &maskedSecret{Fingerprint: fingerprint([]byte(r.Token))}
		if !r.TokenNotAfter.IsZero() {
			s.Token.ExpiresAt = &r.TokenNotAfter
		}
	}
	if chain := certificates(r.ClientCert); len(chain) > 0 {
		s.ClientCertificate = &chain[0]
	}
	return s
}

func certificates(text []byte) []maskedSecret {
	var out []maskedSecret
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // the policy has read them all
		}
		end := cert.NotAfter.UTC()
		out = append(out, maskedSecret{Fingerprint: fingerprint(cert.Raw), Subject: strings.Map(shown, cert.Subject.String()), ExpiresAt: &end})
	}
}

// shown keeps a hostile name from playing with the terminal.
func shown(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// fingerprint is short enough to say nothing of a secret and long enough to tell two apart.
func fingerprint(secret []byte) string {
	sum := sha256.Sum256(secret)
	return fmt.Sprintf("sha256:%x", sum[:6])
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
