package cli

import (
	"io"
	"os"
	"strings"
)

// maxFile is far above what any file that a command reads may hold.
const maxFile = 8 << 20

// readFile reads a file, a pipe such as that of <(command), or with - standard input, up to a bound.
func readFile(file string, in io.Reader) ([]byte, error) {
	name := "standard input"
	if file != "-" {
		// The text may be a secret: it is not shown.
		if strings.ContainsAny(file, "\n\r") || strings.HasPrefix(strings.TrimSpace(file), "{") {
			return nil, usage("a text stands where the path of a file is wanted; to give the text itself, write - and send it to standard input")
		}
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in, name = opened, file
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFile {
		return nil, usage("%s has more than %d MiB", name, maxFile>>20)
	}
	return raw, nil
}
