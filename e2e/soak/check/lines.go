package check

import (
	"bytes"
	"fmt"
)

// logs: what the archive has of every pod that began is what it printed, from the first line to the last. Of a pod that
// was to be cancelled the end may be missing if the archive says so.
func (c *checker) logs(a Attempt) {
	if a.UID == "" {
		return
	}
	c.look(LogComplete)
	log := c.Logs[a.ID]
	if !a.LogsStored || !log.Manifest {
		c.bad(LogComplete, a, "stored: %v, in the archive: %v", a.LogsStored, log.Manifest)
		return
	}
	w := c.wanted[a.Version]
	if w == nil {
		return
	}
	texts := map[string]PodLog{}
	for _, p := range log.Pods {
		texts[p.Pod] = p
		if p.Bytes != int64(len(p.Text)) {
			c.bad(LogComplete, a, "pod %s: %d bytes, the manifest says %d", p.Pod, len(p.Text), p.Bytes)
		}
	}
	notes := map[string]Note{}
	for _, n := range c.Notes[a.ID] {
		notes[n.Pod] = n
	}
	number := 0
	for _, pod := range c.pods[a.ID] {
		n, began := notes[pod.Name]
		delete(notes, pod.Name)
		text, kept := texts[pod.Name]
		if !began || !n.Begin {
			// One that was cancelled and gone before the server looked again may have begun, as far as it can know.
			unsure := !a.CancelRequested.IsZero() && len(text.Gaps) == 1 && bytes.HasPrefix(text.Text, marker) && bytes.Count(text.Text, []byte("\n")) == 1
			if len(text.Text) > 0 && !unsure {
				c.bad(LogComplete, a, "pod %s never began and has a log", pod.Name)
			}
			continue
		}
		number++
		if !kept {
			c.bad(LogComplete, a, "pod %s has no log", pod.Name)
			continue
		}
		if fault := c.podLog(a, w, n, text, number); fault != "" {
			c.bad(LogComplete, a, "pod %s: %s", pod.Name, fault)
		}
	}
	for pod := range notes {
		c.bad(NoOrphan, a, "pod %s ran, of which the cluster knows nothing", pod)
	}
}

var marker = []byte("[nagelfluh] ")

// podLog says what is wrong with the log of one pod; empty: nothing.
func (c *checker) podLog(a Attempt, w *Wanted, n Note, log PodLog, number int) string {
	got, markers := 0, 0
	for line := range bytes.Lines(log.Text) {
		if bytes.HasPrefix(line, marker) {
			markers++
			continue
		}
		if want := w.Line(number, got+1) + "\n"; string(line) != want {
			return fmt.Sprintf("line %d is %.120q, want %q (%d bytes in all)", got+1, line, want, len(log.Text))
		}
		got++
	}
	least := w.Lines
	if n.Exit == nil {
		least = 0
		if n.Term != nil {
			least = *n.Term
		}
	}
	// A cancel takes the pod along, also when the Job came to its own end in that very moment. Pods of others stay until
	// their logs are stored.
	honest := len(log.Gaps) > 0 && !a.CancelRequested.IsZero()
	switch {
	case len(log.Gaps) != markers:
		return fmt.Sprintf("%d markers in the text, %d gaps in the manifest", markers, len(log.Gaps))
	case honest:
		return ""
	case len(log.Gaps) > 0 || !log.Complete:
		return fmt.Sprintf("gaps %v, complete %v after %d of %d lines", log.Gaps, log.Complete, got, w.Lines)
	case got < least:
		return fmt.Sprintf("%d lines, it printed %d", got, least)
	case got > w.Lines:
		return fmt.Sprintf("%d lines, it prints %d", got, w.Lines)
	}
	return ""
}
