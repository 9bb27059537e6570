package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// print writes v for programs, or calls table for people.
func (c *command) print(v any, table func(w io.Writer)) error {
	switch c.output {
	case "json":
		raw, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Out, "%s\n", raw)
		return err
	case "yaml":
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = c.Out.Write(raw)
		return err
	}
	w := tabwriter.NewWriter(c.text(), 0, 8, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// printList is print for a table of one line an item, cut to the terminal.
func (c *command) printList(v any, table func(w io.Writer)) error {
	if c.output != "table" {
		return c.print(v, nil)
	}
	var all strings.Builder
	w := tabwriter.NewWriter(&all, 0, 8, 2, ' ', 0)
	table(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(c.text(), fit(all.String(), c.width()))
	return err
}

// row writes one row of a table; an empty cell is a dash, and a line break within a cell a blank.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = oneLine(fmt.Sprint(cell))
		if texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

func oneLine(s string) string {
	return strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(s)
}

// width is that of the terminal that standard output is; 0: it is none, and nothing is cut.
func (c *command) width() int {
	f, ok := c.Out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// fit cuts the lines of a table to a width, where its last column is the one that can be missed.
func fit(table string, width int) string {
	if width <= 0 {
		return table
	}
	lines := strings.SplitAfter(table, "\n")
	for i, line := range lines {
		text := strings.TrimSuffix(line, "\n")
		lines[i] = short(text, width) + line[len(text):]
	}
	return strings.Join(lines, "")
}

// short cuts a text to n characters.
func short(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-1)]) + "…"
}

func labels(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// age writes how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(time.Since(t))
}

func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// text is standard output for people. What a cluster or a user has named must not steer the terminal. Logs and JSON are
// not written through it: they are as they are.
func (c *command) text() io.Writer { return printable{c.Out} }

// printable writes control characters other than line breaks and tabs as question marks.
type printable struct{ w io.Writer }

func (p printable) Write(b []byte) (int, error) {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, string(b))
	if _, err := io.WriteString(p.w, clean); err != nil {
		return 0, err
	}
	return len(b), nil
}
