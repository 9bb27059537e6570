package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Archive reads the archived logs: a folder an attempt.
func (in *Input) Archive(dir string) error {
	in.Logs = map[string]Log{}
	attempts, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range attempts {
		log, err := readLog(filepath.Join(dir, a.Name()))
		if err != nil {
			return fmt.Errorf("archived log of attempt %s: %w", a.Name(), err)
		}
		in.Logs[a.Name()] = log
	}
	return nil
}

// mainContainer is the one that runs the command.
const mainContainer = "main"

func readLog(dir string) (Log, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Log{}, nil
	}
	if err != nil {
		return Log{}, err
	}
	var manifest struct {
		Copy string
		Pods []struct {
			Name       string
			Containers []struct {
				Name              string
				Restart           int
				Started, Complete bool
				Bytes             int64
				Gaps              []struct{ Code string }
			}
		}
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return Log{}, err
	}
	log := Log{Manifest: true}
	for _, p := range manifest.Pods {
		for _, c := range p.Containers {
			if c.Name != mainContainer {
				continue
			}
			one := PodLog{Pod: p.Name, Started: c.Started, Complete: c.Complete, Bytes: c.Bytes}
			for _, g := range c.Gaps {
				one.Gaps = append(one.Gaps, g.Code)
			}
			file := c.Name + ".log"
			if c.Restart > 0 {
				file = fmt.Sprintf("%s.%d.log", c.Name, c.Restart)
			}
			one.Text, err = os.ReadFile(filepath.Join(dir, manifest.Copy, p.Name, file))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // who printed nothing has no file
				return log, err
			}
			log.Pods = append(log.Pods, one)
		}
	}
	return log, nil
}

// Witness reads the notes of the pods: ATTEMPT.POD, a word a line.
func (in *Input) Witness(dir string) error {
	in.Notes = map[string][]Note{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		attempt, pod, _ := strings.Cut(e.Name(), ".")
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		n := Note{Pod: pod}
		for line := range bytes.Lines(raw) {
			word, number, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
			value, err := strconv.Atoi(number)
			switch {
			case word == "begin":
				n.Begin = true
			case err != nil:
				return fmt.Errorf("note %s: line %q", e.Name(), line)
			case word == "exit":
				n.Exit = &value
			case word == "term":
				n.Term = &value
			}
		}
		in.Notes[attempt] = append(in.Notes[attempt], n)
	}
	return nil
}
