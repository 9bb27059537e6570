package evidence

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

var update = flag.Bool("update", false, "write the golden files")

// recorded is a sequence of what a cluster showed. A step that leaves something out shows what the step before it did;
// an empty list empties it.
type recorded struct {
	Steps []struct {
		At     time.Time       `json:"at"`
		Job    *batchv1.Job    `json:"job"`
		Pods   *[]*corev1.Pod  `json:"pods"`
		Gone   []*corev1.Pod   `json:"gone"`
		Events *[]corev1.Event `json:"events"`
		Queue  *Queue          `json:"queue"`
	} `json:"steps"`
}

// Each file of testdata is a sequence; beside it stands what is to be read from every step, one line a step. The reading
// of a step is the last known row of the next.
func TestGoldenSequences(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sequences: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r recorded
			if err := yaml.UnmarshalStrict(raw, &r); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			in := Input{Cluster: "east", Attempt: process.Attempt{State: process.Queued}}
			for i, s := range r.Steps {
				if s.Job != nil {
					in.Job = s.Job
				}
				if s.Pods != nil {
					in.Pods = *s.Pods
				}
				if s.Events != nil {
					in.Events = *s.Events
				}
				in.Gone, in.Queue, in.Now = append(in.Gone, s.Gone...), s.Queue, s.At
				f := Read(in)
				if again := Read(in); fmt.Sprint(again.Reason, again.State) != fmt.Sprint(f.Reason, f.State) {
					t.Errorf("step %d reads differently the second time", i)
				}
				fmt.Fprintf(&got, "%d %s %s exit=%s runs=%d ran=%s blocked=%q: %s\n", i+1, f.State, f.ReasonCode, exitText(f.ExitCode), f.Runs, f.Ran, f.Blocked(), f.Reason)
				in.Attempt.State, in.Attempt.ReasonCode, in.Attempt.Runs = f.State, f.ReasonCode, f.Runs
				in.Attempt.StartedAt, in.Attempt.ExitCode = f.StartedAt, f.ExitCode
				in.Attempt.Ran, in.Attempt.RunStartedAt, in.Attempt.RunEnded = f.Ran, f.RunStartedAt, f.RunEnded
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("read:\n%swant:\n%s", got.String(), want)
			}
		})
	}
}

func exitText(code *int32) string {
	if code == nil {
		return "-"
	}
	return fmt.Sprint(*code)
}
