package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func (c *command) runCommand() *cobra.Command {
	var detach, cancelOnInterrupt bool
	var key string
	cmd := &cobra.Command{
		Use:   "run [flags] [-- COMMAND ARG...]",
		Short: "Submit a process, follow its log and exit with its exit code",
		Long: `Submit a version of a process, show on standard error where it goes and how it stands, and its log on standard output.

Exit codes: that of the job; 1 when it failed without one; 121 when its result could not be read; 122 when interrupted, or
when the server was out of reach for too long (the job goes on); 125 when nothing was submitted; 130 when it was cancelled.`,
		Example: `  nagelfluh run --image busybox -- echo hello
  nagelfluh run --name train --image ghcr.io/team/train:1 --gpus 2 --limit memory=16Gi -- python train.py
  nagelfluh run -f job.yaml --detach`,
	}
	s := addSubmission(cmd)
	f := cmd.Flags()
	f.BoolVarP(&detach, "detach", "d", false, "submit, print the version's id and end")
	f.BoolVar(&cancelOnInterrupt, "cancel-on-interrupt", false, "cancel the job at Ctrl-C instead of leaving it")
	f.StringVar(&key, "idempotency-key", "", "makes repeating this command safe (default: a fresh one)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sub, err := s.build(c, args)
		if err != nil {
			return err
		}
		api, err := c.connect()
		if err != nil {
			return err
		}
		v, err := c.submit(cmd.Context(), api, sub, key)
		if err != nil {
			return &exit{code: ExitNotAccepted, err: err}
		}
		if detach {
			if c.output != "table" {
				return c.print(v, nil)
			}
			fmt.Fprintln(c.Out, v.ID)
			return nil
		}
		c.note("submitted version %d of process %q: %s", v.Number, v.ProcessName, v.ID)
		return c.attend(cmd.Context(), api, v, cancelOnInterrupt)
	}
	return cmd
}

const submitTries = 5

// submit sends the submission. A lost answer is no reason to ask the user: the same key gives the same version.
func (c *command) submit(ctx context.Context, api *client.Client, sub client.Submission, key string) (client.Version, error) {
	if key == "" {
		key = uuid.NewString()
	}
	for try := 1; ; try++ {
		v, err := call[client.Version](api.SubmitProcess(ctx, c.projectRef(), &client.SubmitProcessParams{IdempotencyKey: &key}, sub))
		var answered *apiError
		refused := errors.As(err, &answered) && answered.status != http.StatusServiceUnavailable
		if err == nil || refused || try == submitTries || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * retryFirst):
		}
	}
}

// attend follows a version to its end and returns its exit code as an error.
func (c *command) attend(ctx context.Context, api *client.Client, v client.Version, cancelOnInterrupt bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	detached := c.interrupts(ctx, api, v, cancelOnInterrupt, stop)

	notes := make(chan struct{})
	go func() {
		defer close(notes)
		c.showNotes(ctx, api, v)
	}()
	end, err := c.followLog(ctx, api, v.ID, &client.StreamLogsParams{})
	if err == nil {
		select { // the last notes come with the end, or not at all
		case <-notes:
		case <-time.After(2 * time.Second):
		}
	}
	stop()
	<-notes
	switch {
	case detached():
		c.note("detached; the job goes on. To go on reading: nagelfluh logs -f %s; to stop it: nagelfluh cancel %s", v.ID, v.ID)
		return &exit{code: ExitDetached}
	case errors.Is(err, errGone):
		return &exit{code: ExitDetached, err: fmt.Errorf("%w; the job goes on: nagelfluh logs -f %s", err, v.ID)}
	case err != nil:
		return &exit{code: ExitDetached, err: err}
	}
	return ending(end)
}

// ending turns the end of a job into the command's exit code.
func ending(end client.LogEnd) error {
	code := ExitError
	switch end.State {
	case "succeeded":
		return nil
	case "cancelled":
		code = ExitCancelled
	case "unknown":
		code = ExitUnknown
	case "failed":
		if end.ExitCode != nil && *end.ExitCode != 0 {
			code = int(*end.ExitCode)
		}
	}
	return &exit{code: code}
}

// interrupts handles Ctrl-C until ctx ends: the first detaches or cancels, a second one after a cancel detaches. What it
// returns waits for the end and says whether it came to detaching.
func (c *command) interrupts(ctx context.Context, api *client.Client, v client.Version, cancelIt bool, stop func()) (detached func() bool) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	result := make(chan bool, 1)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				result <- false
				return
			case <-signals:
			}
			if !cancelIt {
				stop()
				result <- true
				return
			}
			cancelIt = false
			if _, err := call[client.Version](api.CancelVersion(ctx, v.ID)); err != nil {
				c.note("cannot cancel: %s", describe(err))
				continue
			}
			c.note("cancelling; Ctrl-C again to stop waiting")
		}
	}()
	return func() bool { return <-result }
}

// showNotes writes on standard error how the version stands, until its end.
func (c *command) showNotes(ctx context.Context, api *client.Client, v client.Version) {
	last := ""
	open := func(ctx context.Context, id string) (*http.Response, error) {
		return api.StreamVersionEvents(ctx, v.ID, &client.StreamVersionEventsParams{LastEventID: optional(id)})
	}
	// What goes wrong with this stream goes wrong with that of the log, which says so.
	_ = follow(ctx, open, nil, func(m message) bool {
		if m.event == "end" {
			return true
		}
		var e client.Event
		if json.Unmarshal(m.data, &e) != nil || e.Message == "" || e.Kind == "submitted" {
			return false
		}
		if e.Message == last { // what was decided is what the new state says too
			return false
		}
		last = e.Message
		text := e.Message
		switch {
		case e.Kind == "decided" && e.ClusterID != "":
			text = "placed on " + c.clusterName(ctx, api, v.ID, e.ClusterID) + ": " + text
		case e.State != "":
			text = string(e.State) + ": " + text
		}
		c.note("%s", text)
		return false
	})
}

// clusterName asks for the name of the version's cluster; its id will do when that fails.
func (c *command) clusterName(ctx context.Context, api *client.Client, versionID, clusterID string) string {
	v, err := call[client.Version](api.GetVersion(ctx, versionID))
	if err != nil || v.Attempt.ClusterID != clusterID {
		return clusterID
	}
	return nameOr(v.Attempt.ClusterName, clusterID)
}

// followLog writes the log to standard output until its end.
func (c *command) followLog(ctx context.Context, api *client.Client, id string, p *client.StreamLogsParams) (end client.LogEnd, err error) {
	began := time.Now()
	open := func(ctx context.Context, last string) (*http.Response, error) {
		q := *p
		q.LastEventID = optional(last)
		if q.Since != nil {
			// What is opened again before anything came must not leave out what was printed meanwhile.
			if d, err := time.ParseDuration(*q.Since); err == nil {
				q.Since = optional((d + time.Since(began)).String())
			}
		}
		return api.StreamLogs(ctx, id, &q, func(_ context.Context, r *http.Request) error {
			r.Header.Set("Accept", "text/event-stream")
			return nil
		})
	}
	var broken error
	ended := false
	attempt, shown := "", client.LogPod{}
	err = follow(ctx, open, func(err error) { c.note("the log is interrupted, trying again: %v", err) }, func(m message) bool {
		switch m.event {
		case "log":
			var t client.LogText
			if broken = json.Unmarshal(m.data, &t); broken != nil {
				return true
			}
			text := []byte(t.Text)
			if len(t.Raw) > 0 {
				text = t.Raw
			}
			_, broken = c.Out.Write(text)
			return broken != nil
		case "attempt":
			var a client.LogAttempt
			if broken = json.Unmarshal(m.data, &a); broken == nil && a.ID != attempt {
				attempt, shown = a.ID, client.LogPod{}
				c.note("==> attempt %d <==", a.Attempt)
			}
		case "pod":
			// Standard output has the job's bytes alone. The first needs no words, nor does one that is gone on with.
			var pod client.LogPod
			if broken = json.Unmarshal(m.data, &pod); broken == nil {
				if shown.Pod != "" && (pod.Pod != shown.Pod || pod.Container != shown.Container || pod.Restart != shown.Restart) {
					c.note("==> pod %s, container %s <==", pod.Pod, pod.Container)
				}
				shown = pod
			}
		case "end":
			ended = true
			broken = json.Unmarshal(m.data, &end)
			return true
		}
		return false
	})
	if err == nil {
		err = broken
	}
	if err == nil && !ended { // the server says that the end was sent before
		v, verr := call[client.Version](api.GetVersion(ctx, id))
		end, err = client.LogEnd{State: v.State, ExitCode: v.Attempt.ExitCode, Reason: v.Attempt.Reason}, verr
	}
	return end, err
}
