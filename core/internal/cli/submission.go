package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/core/api/client"
	"github.com/nagelfluh/nagelfluh/core/internal/yamldoc"
)

// submission are the flags that describe what is to run.
type submission struct {
	file, name, kind, image, cluster, queue, workdir, gpuResource string
	env, requests, limits, labels, nodes                          []string
	gpus                                                          int
	retries                                                       int32
	maxRuntime                                                    string
	cmd                                                           *cobra.Command
}

func addSubmission(cmd *cobra.Command) *submission {
	s := &submission{cmd: cmd}
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", "YAML or JSON file with a submission (- reads standard input); flags win over it")
	f.StringVar(&s.name, "name", "", "name of the process (default: the image's last part)")
	f.StringVar(&s.kind, "type", "", "type of the process, which selectors may key on")
	f.StringVar(&s.image, "image", "", "container image")
	f.StringArrayVarP(&s.env, "env", "e", nil, "environment variable NAME=VALUE; NAME alone takes the value from here (repeatable)")
	f.StringArrayVar(&s.requests, "request", nil, "resource request such as cpu=500m (repeatable)")
	f.StringArrayVar(&s.limits, "limit", nil, "resource limit such as memory=2Gi (repeatable)")
	f.IntVar(&s.gpus, "gpus", 0, "number of GPUs: short for --limit GPU-RESOURCE=N")
	f.StringVar(&s.gpuResource, "gpu-resource", "nvidia.com/gpu", "resource that --gpus means")
	f.StringVar(&s.cluster, "cluster", "", "cluster to run on, id or name (default: placement decides)")
	f.StringVar(&s.queue, "queue", "", "Kueue LocalQueue (default: the cluster's)")
	f.StringVarP(&s.workdir, "workdir", "w", "", "working directory in the container")
	f.StringArrayVar(&s.labels, "label", nil, "label of the process, NAME=VALUE (repeatable)")
	f.StringArrayVar(&s.nodes, "node-selector", nil, "label that the node must have, NAME=VALUE (repeatable)")
	f.Int32Var(&s.retries, "retries", 0, "how often a failed pod is started again")
	f.StringVar(&s.maxRuntime, "max-runtime", "", "most running time, such as 90m (default: the cluster's)")
	return s
}

// build makes the submission of file, flags and the words after --.
func (s *submission) build(c *command, args []string) (out client.Submission, err error) {
	if s.file != "" {
		if out, err = readSubmission(s.file, c.In); err != nil {
			return out, err
		}
	}
	set := func(dst *string, v string) {
		if v != "" {
			*dst = v
		}
	}
	set(&out.Name, s.name)
	set(&out.Type, s.kind)
	set(&out.Spec.Image, s.image)
	set(&out.Spec.Cluster, s.cluster)
	set(&out.Spec.QueueName, s.queue)
	set(&out.Spec.WorkingDir, s.workdir)
	if len(args) > 0 {
		out.Spec.Command, out.Spec.Args = args, nil
	}
	if s.cmd.Flags().Changed("retries") {
		out.Spec.Retries = s.retries
	}
	if err := s.environment(c, &out.Spec); err != nil {
		return out, err
	}
	if s.cmd.Flags().Changed("gpus") {
		s.limits = append(s.limits, s.gpuResource+"="+strconv.Itoa(s.gpus))
	}
	for _, group := range []struct {
		flag string
		from []string
		into *map[string]string
	}{
		{"request", s.requests, &out.Spec.Requests}, {"limit", s.limits, &out.Spec.Limits},
		{"label", s.labels, &out.Labels}, {"node-selector", s.nodes, &out.Spec.NodeSelector},
	} {
		if err := pairs(group.flag, group.from, group.into); err != nil {
			return out, err
		}
	}
	if s.maxRuntime != "" {
		seconds, err := parseSeconds(s.maxRuntime)
		if err != nil {
			return out, usage("--max-runtime: %v", err)
		}
		out.Spec.MaxRuntimeSeconds = &seconds
	}
	if out.Spec.Image == "" {
		return out, usage("no image: give --image, or -f with a submission")
	}
	if out.Name == "" {
		out.Name = imageName(out.Spec.Image)
	}
	return out, nil
}

func (s *submission) environment(c *command, spec *client.Spec) error {
	for _, e := range s.env {
		name, value, given := strings.Cut(e, "=")
		if name == "" {
			return usage("--env %q has no name: want NAME=VALUE", e)
		}
		if !given {
			value = c.getenv(name)
		}
		replaced := false
		for i := range spec.Env {
			if spec.Env[i].Name == name {
				spec.Env[i].Value, replaced = value, true
			}
		}
		if !replaced {
			spec.Env = append(spec.Env, client.EnvVar{Name: name, Value: value})
		}
	}
	return nil
}

func pairs(flag string, from []string, into *map[string]string) error {
	for _, p := range from {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return usage("--%s is %q: want NAME=VALUE", flag, p)
		}
		if *into == nil {
			*into = map[string]string{}
		}
		(*into)[name] = value
	}
	return nil
}

// imageName is the last part of an image reference, without tag and digest.
func imageName(image string) string {
	name, _, _ := strings.Cut(path.Base(image), "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// readSubmission reads a file strictly: what the contract does not know is an error. Quantities, labels and values of
// variables are text however they are written.
func readSubmission(file string, in io.Reader) (out client.Submission, err error) {
	raw, err := readFile(file, in)
	if err != nil {
		return out, err
	}
	tree, err := yamldoc.Decode(raw, isText)
	if err != nil {
		return out, usage("%s is not valid YAML: %v", file, err)
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return out, err
	}
	strict := json.NewDecoder(bytes.NewReader(plain))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&out); err != nil {
		return out, usage("%s is no submission: %v", file, err)
	}
	return out, nil
}

// numbers are the fields of a submission that are not text.
var numbers = []string{"retries", "infrastructure_retries", "max_runtime_seconds"}

func isText(path []string, _, _ string) bool {
	if len(path) == 3 && path[0] == "spec" && path[1] == "start_limits" {
		return false
	}
	return len(path) != 2 || path[0] != "spec" || !slices.Contains(numbers, path[1])
}
