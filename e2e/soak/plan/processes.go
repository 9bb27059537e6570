package plan

import (
	"fmt"
	"strconv"
	"time"
)

// ProcessKind is a way in which a process behaves.
type ProcessKind string

// Kinds of processes.
const (
	Short   ProcessKind = "short"
	Fails   ProcessKind = "fails"     // with an exit code of its own
	Retries ProcessKind = "retries"   // some pods fail; the last succeeds, or not
	Stopped ProcessKind = "cancelled" // at some time, which may be too late
	GPU     ProcessKind = "gpu"
	Long    ProcessKind = "long"
	Noisy   ProcessKind = "noisy"
)

// Process is one submission and what its command does: each pod prints Lines numbered lines, with a Pause after every
// Every of them, and ends; the first Failing pods with Code.
type Process struct {
	Name        string
	Kind        ProcessKind
	At          time.Duration // of the submission, since the begin
	Cluster     int           // asked for; -1: placement decides
	GPUs        int
	Lines       int
	Every       int
	Pause       time.Duration
	Failing     int
	Code        int
	Retries     int
	CancelAfter time.Duration // after it was accepted; 0: never
	Again       bool          // the same submission is sent twice
}

// Succeeds says how it ends unless it is cancelled.
func (p Process) Succeeds() bool { return p.Failing <= p.Retries }

// Pods is how many it takes to its end.
func (p Process) Pods() int { return min(p.Failing, p.Retries) + 1 }

// ExitCode is that of the last pod.
func (p Process) ExitCode() int {
	if p.Succeeds() {
		return 0
	}
	return p.Code
}

// Line is the text of a line, counted from 1, of a pod, counted from 1.
func (p Process) Line(pod, number int) string {
	return fmt.Sprintf("%s pod %d line %d of %d", p.Name, pod, number, p.Lines)
}

// The variable that names the folder of the notes.
const envWitness = "SOAK_WITNESS"

// script is what every pod runs. Beside its lines it leaves a note of its own, which no server has in its hands: that
// it began, and how it ended.
const script = `note="$SOAK_WITNESS/$NAGELFLUH_ATTEMPT.$HOSTNAME"
i=0
trap 'echo "term $i" >>"$note"; exit 143' TERM
echo begin >>"$note"
set -- "$SOAK_WITNESS/$NAGELFLUH_ATTEMPT".*
while [ $i -lt "$LINES" ]; do
  echo "$NAME pod $# line $((i + 1)) of $LINES"
  i=$((i + 1))
  [ $((i % EVERY)) -ne 0 ] || sleep "$PAUSE"
done
code=0
[ $# -gt "$FAILING" ] || code=$CODE
echo "exit $code" >>"$note"
exit $code`

// Submission is the body of the request. witness is the folder of the notes; cluster names the one asked for.
func (p Process) Submission(witness, cluster string) map[string]any {
	env := []map[string]string{}
	for _, pair := range [][2]string{
		{envWitness, witness}, {"NAME", p.Name}, {"LINES", strconv.Itoa(p.Lines)}, {"EVERY", strconv.Itoa(p.Every)},
		{"PAUSE", strconv.FormatFloat(p.Pause.Seconds(), 'f', 3, 64)},
		{"FAILING", strconv.Itoa(p.Failing)}, {"CODE", strconv.Itoa(p.Code)},
	} {
		env = append(env, map[string]string{"name": pair[0], "value": pair[1]})
	}
	spec := map[string]any{"image": "busybox", "command": []string{"sh", "-c", script}, "env": env, "retries": p.Retries}
	if p.GPUs > 0 {
		spec["limits"] = map[string]string{"nvidia.com/gpu": strconv.Itoa(p.GPUs)}
	}
	if cluster != "" {
		spec["cluster"] = cluster
	}
	return map[string]any{"name": p.Name, "spec": spec}
}

// mix is how many of a hundred are of a kind.
var mix = []struct {
	kind    ProcessKind
	percent int
}{{Short, 40}, {Fails, 12}, {Retries, 6}, {Stopped, 16}, {GPU, 8}, {Long, 8}, {Noisy, 10}}

// Submissions returns what is submitted, in order of time. The kinds are dealt in turn, so that a small soak has them all.
func (o Options) Submissions() []Process {
	r := o.random(2)
	var kinds []ProcessKind
	for _, m := range mix {
		for range m.percent {
			kinds = append(kinds, m.kind)
		}
	}
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	all := make([]Process, o.Processes)
	for i := range all {
		p := Process{
			Kind: kinds[i%len(kinds)], At: o.Duration * time.Duration(i) / time.Duration(o.Processes),
			Cluster: -1, Lines: 1 + r.IntN(20), Every: 1_000_000, Again: r.IntN(20) == 0,
		}
		// Every third may go to any of the clusters that it asks for, the others where placement says.
		if cluster := r.IntN(o.Clusters); r.IntN(3) == 0 {
			p.Cluster = cluster
		}
		code, lines, pause := 1+r.IntN(125), r.IntN(18_000), between(r, 200*time.Millisecond, time.Second)
		lasts := between(r, time.Second, min(time.Minute, o.Duration/5))
		cancel := between(r, time.Millisecond, min(20*time.Second, o.Duration/5))
		fail := 1 + r.IntN(2)
		switch p.Kind {
		case Fails:
			p.Failing, p.Code = 1, code
		case Retries:
			p.Failing, p.Code, p.Retries = fail, code, 1
		case GPU:
			if o.Clusters > GPUCluster {
				p.GPUs, p.Cluster = fail, -1
			}
		case Noisy:
			p.Lines = 2_000 + lines
		case Long, Stopped:
			p.Lines, p.Every, p.Pause = max(int(lasts/pause), 1), 1, pause
		}
		if p.Kind == Stopped && !o.Patient {
			p.CancelAfter = cancel
		}
		p.Name = fmt.Sprintf("%s-%04d", p.Kind, i)
		all[i] = p
	}
	return all
}

// GPUCluster is the number of the cluster that has GPUs, if there is one.
const GPUCluster = 1
