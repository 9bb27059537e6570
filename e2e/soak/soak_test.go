package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/check"
	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// A small soak with every kind of fault is clean, and the checker finds what is damaged afterwards: a line that is taken
// from a log, and a second Job of an attempt. One plan: the search for what no plan has shown yet is make
// soak's.
func TestSmallSoak(t *testing.T) {
	needBinaries(t)
	o := options{
		Options: plan.Options{Seed: 1, Duration: 30 * time.Second, Processes: 50, Clusters: 2}, retention: 5 * time.Second,
		say: t.Logf,
	}
	ctx := t.Context()
	w, err := start(ctx, o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var r report
	c, err := w.happen(ctx, &r)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.settle(ctx); err != nil {
		t.Error(err)
	}
	in, err := w.collect(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	result := check.Check(in)
	for _, v := range result.Violations {
		t.Error(v)
	}
	if len(in.Wanted) != o.Processes {
		t.Errorf("%d processes were accepted, want %d", len(in.Wanted), o.Processes)
	}
	for _, f := range o.Faults() {
		if r.faults[f.Kind] == 0 {
			t.Errorf("%q never happened", f.Kind)
		}
	}
	if t.Failed() {
		lines(t, w.cores[0].log, 60)
		return
	}

	if err := w.loseLine(in); err != nil {
		t.Fatal(err)
	}
	if err := in.Archive(w.archive()); err != nil {
		t.Fatal(err)
	}
	if r := check.Check(in); len(r.Violations) != 1 || r.Count(check.LogComplete) != 1 {
		t.Errorf("a line is missing; found: %v", r.Violations)
	}

	attempt := in.Attempts[0].ID
	if err := w.makeJob(ctx, "second", map[string]string{"nagelfluh.io/attempt": attempt}); err != nil {
		t.Fatal(err)
	}
	db, err := check.Open(w.database())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := w.histories(ctx, db, &in); err != nil {
		t.Fatal(err)
	}
	found := check.Check(in)
	for _, v := range found.Violations {
		if v.Rule == check.NothingDoubled && v.Attempt == attempt {
			return
		}
	}
	t.Errorf("attempt %s has a second Job; found: %v", attempt, found.Violations)
}

// With a mutant, a whole soak ends in violations of its rule.
func TestMutantEndsInViolations(t *testing.T) {
	needBinaries(t)
	r, err := run(t.Context(), options{
		Options: plan.Options{Seed: 5, Duration: 5 * time.Second, Processes: 12, Clusters: 1, Calm: true}, retention: 2 * time.Second,
		mutant: mutantSecondJob, dir: t.TempDir(), say: t.Logf,
	})
	if !errors.Is(err, errViolated) || r.result.Count(check.NothingDoubled) == 0 {
		t.Errorf("%v, found: %v", err, r.result.Violations)
	}
}

func needBinaries(t *testing.T) {
	t.Helper()
	root, err := stack.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range []string{"bin/devcluster", "bin/nagelfluh", "bin/plugins/selector-gpu"} {
		if _, err := os.Stat(filepath.Join(root, need)); err == nil {
			continue
		}
		text := fmt.Sprintf("%s is missing: run `make build devcluster`", need)
		if os.Getenv("NAGELFLUH_REQUIRE_DEVCLUSTER") == "1" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
}

// lines logs the end of a file.
func lines(t *testing.T, path string, n int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	from := len(raw)
	for ; from > 0 && n > 0; from-- {
		if raw[from-1] == '\n' {
			n--
		}
	}
	t.Logf("the end of %s:\n%s", path, raw[from:])
}

func TestOptionsAreChecked(t *testing.T) {
	good := options{Options: plan.Options{Duration: time.Minute, Processes: 1, Clusters: 1}}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*options){
		"no processes":   func(o *options) { o.Processes = 0 },
		"no clusters":    func(o *options) { o.Clusters = 0 },
		"no time":        func(o *options) { o.Duration = 0 },
		"unknown mutant": func(o *options) { o.mutant = "x" },
	} {
		bad := good
		change(&bad)
		if bad.validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
