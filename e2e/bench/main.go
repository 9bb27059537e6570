// Command bench measures Nagelfluh on two local clusters and prints a table. Whatever is compared is measured in the same
// run, in turns; a time alone says more about the machine than about the code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// row is one line of the table.
type row struct {
	name   string
	ours   string
	base   string
	result string
	aim    string
	met    bool
}

// part measures one or more rows.
type part struct {
	key string
	run func(context.Context, *bench) ([]row, error)
}

var parts = []part{
	{"bulk", bulk},
	{"single", single},
	{"placement", placement},
	{"events", events},
	{"frozen", frozen},
	{"memory", memory},
	{"registry", registry},
	{"lists", lists},
	{"versions", versions},
	{"logs", follows},
}

func main() {
	only := flag.String("only", "", "comma-separated parts: bulk,single,placement,events,frozen,memory,registry,lists,versions,logs; empty: all")
	quick := flag.Bool("quick", false, "fewer samples, to try the bench itself")
	verbose := flag.Bool("v", false, "print where processor time goes, and the server's log")
	pairs := flag.Int("pairs", 5, "pairs of parts bulk and logs")
	debug := flag.String("debug-listen", "", "address at which the server under test serves its profiles, such as 127.0.0.1:6060; empty: none")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, bench{quick: *quick, verbose: *verbose, pairs: *pairs, debug: *debug}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var began = time.Now()

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

// bench is what the parts share.
type bench struct {
	dir      string
	clusters *stack.Clusters
	quick    bool
	verbose  bool
	pairs    int
	debug    string // where the server serves its profiles
	servers  int
}

// detail prints what only those want who look for the cause of a figure.
func (b *bench) detail(format string, args ...any) {
	if b.verbose {
		say(format, args...)
	}
}

// n is a number of samples, fewer when quick.
func (b *bench) n(full int) int {
	if b.quick {
		return max(full/20, 20)
	}
	return full
}

func run(ctx context.Context, only string, settings bench) error {
	dir, err := os.MkdirTemp("", "nagelfluh-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	say("starting two local clusters")
	clusters, err := stack.StartClusters(ctx, filepath.Join(dir, "clusters"), clusterNames, nil,
		"--name", "main", "--name", "gpu", "--gpus", "4000")
	if err != nil {
		return err
	}
	defer func() { _ = clusters.Stop(20 * time.Second) }()
	b := &settings
	b.dir, b.clusters = dir, clusters

	var rows []row
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.key) {
			continue
		}
		say("measuring: %s", p.key)
		got, err := p.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.key, err)
		}
		rows = append(rows, got...)
	}
	print(rows)
	return nil
}

func print(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tOURS\tBASELINE\tRESULT\tAIM\tMET")
	for _, r := range rows {
		met := "no"
		if r.met {
			met = "yes"
		}
		if r.aim == "" {
			met = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.ours, r.base, r.result, r.aim, met)
	}
	_ = w.Flush()
}

// quantile returns the q-quantile of samples, which it sorts.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(int(q*float64(len(samples))), len(samples)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func p50p99(samples []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s (n=%d)", ms(quantile(samples, 0.5)), ms(quantile(samples, 0.99)), len(samples))
}
