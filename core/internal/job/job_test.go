package job

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func input() Input {
	return Input{
		Installation: "installation-1",
		Version: process.Version{
			ID: "0199f0c2-0000-7000-8000-000000000001", ProjectID: "project-1", ProcessName: "Größe_Test/1",
			Spec: process.Spec{Image: "registry.example/worker:1", Retries: 2},
		},
		Attempt: process.Attempt{
			ID: "0199f0c2-0000-7000-8000-000000000002", Namespace: "nagelfluh-jobs",
			JobName: Name("Größe_Test/1", "0199f0c2-0000-7000-8000-000000000002"),
		},
	}
}

func TestBuildGolden(t *testing.T) {
	tests := map[string]func(*Input){
		"plain": func(*Input) {},
		"gpu-queue": func(in *Input) { // B33: request and limit of an extended resource are made equal
			in.Version.Spec.Limits = map[string]string{"nvidia.com/gpu": "2", "memory": "1Gi"}
			in.Version.Spec.Requests = map[string]string{"cpu": "500m", "amd.com/gpu": "1"}
			in.QueueName = "team-a"
			in.PullSecrets = []string{"registry"}
			in.Version.Spec.NodeSelector = map[string]string{"zone": "a"}
			in.Version.Spec.Labels = map[string]string{"git/branch": "feature/x: y"}
		},
		"limits": func(in *Input) {
			in.Version.Spec.MaxRuntimeSeconds = new(int64(600))
			in.MaxRuntime = new(int64(300))
			in.Version.Spec.WorkingDir = "/data"
		},
		"dollars": func(in *Input) { // B23
			in.Version.Spec.Command = []string{"sh", "-c"}
			in.Version.Spec.Args = []string{`echo $$ $(date) ${X}`, "$$1$$"}
			in.Version.Spec.Env = []process.EnvVar{
				{Name: "P", Value: "pa$$word"}, {Name: "Q", Value: "$(HOME)"}, {Name: "NAGELFLUH_ATTEMPT", Value: "mine"},
			}
			in.Env = []process.EnvVar{{Name: "STORAGE", Value: "s3://$bucket"}}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			in := input()
			change(&in)
			j, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Job differs from %s (-want +got):\n%s", path, diff)
			}
		})
	}
}

func TestBuildTwiceIsEqualAndSharesNothing(t *testing.T) {
	in := input()
	in.QueueName = "q"
	a, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two builds differ:\n%s", diff)
	}
	a.Labels["x"] = "y"
	if b.Labels["x"] != "" || a.Spec.Template.Labels["x"] != "" {
		t.Error("builds share a map")
	}
	if _, there := a.Spec.Template.Labels[LabelQueue]; there {
		t.Error("the queue label is on the pod too")
	}
}

func TestBuildRefusesBadQuantity(t *testing.T) {
	in := input()
	in.Version.Spec.Limits = map[string]string{"cpu": "many"}
	if _, err := Build(in); err == nil {
		t.Fatal("no error for a bad quantity")
	}
}

func TestOwned(t *testing.T) {
	in := input()
	j, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if !Owned(j.Labels, in.Installation, in.Attempt.ID) {
		t.Error("the attempt's own Job is not taken as owned")
	}
	for name, owned := range map[string]bool{
		"other attempt":      Owned(j.Labels, in.Installation, "other"),
		"other installation": Owned(j.Labels, "other", in.Attempt.ID),
		"no labels":          Owned(nil, in.Installation, in.Attempt.ID),
		"no attempt":         Owned(map[string]string{LabelInstallation: in.Installation}, in.Installation, ""),
	} {
		if owned {
			t.Errorf("%s: taken as owned", name)
		}
	}
}

func TestMaxRuntime(t *testing.T) {
	for _, c := range []struct{ a, b, want *int64 }{
		{nil, nil, nil},
		{new(int64(1)), nil, new(int64(1))},
		{nil, new(int64(2)), new(int64(2))},
		{new(int64(3)), new(int64(2)), new(int64(2))},
		{new(int64(1)), new(int64(2)), new(int64(1))},
	} {
		if diff := cmp.Diff(c.want, MaxRuntime(c.a, c.b)); diff != "" {
			t.Errorf("MaxRuntime(%v, %v): %s", c.a, c.b, diff)
		}
	}
}
